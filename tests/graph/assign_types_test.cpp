#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "base/cuda_built.h"
#include "graph_builder.h"
#include "ops/core/onnx_types.h"
#include "tests/ops/node_text.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

Graph assigned(const Graph& graph, std::string_view precision) {
  return after(graph, "assign_types", {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
}

std::ptrdiff_t casts(const Graph& graph) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.type() == "Cast"; });
}

const Node& only_node(const Graph& graph, std::string_view type) {
  const auto is = [&](const Node& node) { return node.type() == type; };
  REQUIRE(std::count_if(graph.nodes.begin(), graph.nodes.end(), is) == 1);
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(), is);
}

DType type_of(const Graph& graph, ValueId id) { return graph.value(id).dtype; }

// A classifier: Conv, MaxPool, Flatten, Gemm, Softmax.
Graph classifier(std::int64_t batch = 1) {
  GraphBuilder b;
  const ValueId x = b.input("x", {-1, 16, 8, 8});
  const ValueId convolved = b.node("Relu", {b.conv(x, 16, 32, 3, 1)});
  const ValueId pooled =
      b.node("MaxPool", {convolved},
             {{"kernel_shape", std::vector<std::int64_t>{2, 2}}, {"strides", std::vector<std::int64_t>{2, 2}}});
  const ValueId flat = b.node("Flatten", {pooled});
  const ValueId scores = b.node("Gemm", {flat, b.weights({512, 10}), b.weights({10})});
  b.output(b.node("Softmax", {scores}));
  return b.build(batch);
}

}  // namespace

TEST_CASE("assign_types/fp32_changes_nothing") {
  const Graph before = classifier();
  CHECK(assigned(before, "fp32").dump() == before.dump());
  CHECK(assigned(before, "tf32").dump() == before.dump());
}

TEST_CASE("assign_types/a_network_of_one_product_stays_as_it_is") {
  GraphBuilder b;
  b.output(b.node("Gemm", {b.input("x", {9, 64}), b.weights({64, 64}), b.weights({64})}));
  const Graph before = b.build();
  CHECK(assigned(before, "fp16").dump() == before.dump());
}

// An output declared as float16 (widen puts a Cast before it) is returned in float16; one declared as float32 is not.
TEST_CASE("assign_types/outputs_keep_the_type_that_the_model_declares") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {-1, 16, 8, 8}), 16, 16, 3, 1);
  b.output(b.node("Cast", {x}, {{"to", dtype_to_onnx(DType::f16)}}));
  b.output(b.conv(x, 16, 16, 1));
  const Graph before = b.build(), graph = assigned(before, "fp16");
  INFO(graph.dump());
  CHECK(type_of(graph, graph.outputs[0]) == DType::f16);
  CHECK(type_of(graph, graph.outputs[1]) == DType::f32);
}

// If the file rounds a product's input, the product reads the unrounded value and rounds it itself.
TEST_CASE("assign_types/a_product_rounds_what_the_file_casts_for_it") {
  GraphBuilder b;
  const ValueId x = b.input("x", {8, 3, 32, 32});
  const ValueId half = b.node("Cast", {x}, {{"to", dtype_to_onnx(DType::f16)}});
  const ValueId back = b.node("Cast", {half}, {{"to", dtype_to_onnx(DType::f32)}});
  b.output(b.conv(b.conv(back, 3, 16, 3, 1), 16, 16, 3, 1));
  const Graph graph = assigned(b.build(), "fp16");
  INFO(graph.dump());
  CHECK(casts(graph) == 1);  // for the output
  CHECK(graph.node(0).inputs[0] == x);
}

TEST_CASE("assign_types/inputs_are_rounded_before_they_are_moved") {
  const std::vector<std::int64_t> perm{0, 2, 4, 1, 3, 5};
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 8, 4, 8});
  const auto product = [&](ValueId moved) {
    const ValueId image = b.node("Reshape", {moved, b.int64s({2, 16, 4, 48})});
    return b.node("Relu", {b.conv(image, 16, 8, 1)});
  };
  const ValueId moved = b.node("Transpose", {x}, {{"perm", perm}});
  DType expected = DType::f16;
  SUBCASE("of products alone") { b.output(product(moved)); }
  SUBCASE("of a product and another node") {
    expected = DType::f32;
    b.output(product(moved));
    b.output(b.node("Sin", {moved}));
  }
  SUBCASE("that is an output") {
    expected = DType::f32;
    b.output(product(moved));
    b.output(moved);
  }
  const Graph typed = assigned(b.build(2), "fp16");
  CHECK(type_of(typed, only_node(typed, "Transpose").inputs[0]) == expected);
}

// A Cast that the file has is replaced by one that was made before: a value younger than the pass.
TEST_CASE("assign_types/a_transpose_behind_a_cast_that_exists") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 16, 6, 6});
  b.output(b.node("Relu", {b.conv(b.node("Relu", {b.conv(x, 16, 16, 3, 1)}), 16, 16, 1)}));
  const ValueId half = b.node("Cast", {x}, {{"to", dtype_to_onnx(DType::f16)}});
  b.output(b.node("Transpose", {half}, {{"perm", std::vector<std::int64_t>{0, 1, 3, 2}}}));
  const Graph typed = assigned(b.build(2), "fp16");
  CHECK(type_of(typed, only_node(typed, "Transpose").inputs[0]) == DType::f16);
}

TEST_CASE("assign_types/a_classifier") {
  for (const std::int64_t batch : {8, 9})
    for (const auto& [precision, half] : {std::pair<const char*, DType>{"fp16", DType::f16}, {"bf16", DType::bf16}}) {
      const Graph graph = assigned(classifier(batch), precision);
      INFO(graph.dump());
      // Casts of the input and of the last product's input; for few rows the product reads 16 bits itself.
      CHECK(casts(graph) == (batch == 8 ? 1 : 2));
      const Node& conv = only_node(graph, "Conv");
      CHECK(type_of(graph, conv.inputs[0]) == half);
      CHECK(type_of(graph, conv.inputs[1]) == DType::f32);
      CHECK(type_of(graph, conv.outputs[0]) == half);
      CHECK(type_of(graph, only_node(graph, "Relu").outputs[0]) == half);
      CHECK(type_of(graph, only_node(graph, "MaxPool").outputs[0]) == half);
      CHECK(type_of(graph, only_node(graph, "Flatten").outputs[0]) == half);
      const Node& gemm = only_node(graph, "Gemm");
      CHECK(type_of(graph, gemm.inputs[0]) == (batch == 8 ? half : DType::f32));
      CHECK(type_of(graph, gemm.outputs[0]) == DType::f32);
      CHECK(type_of(graph, graph.inputs[0]) == DType::f32);
      CHECK(type_of(graph, graph.outputs[0]) == DType::f32);
    }
}

// On the CPU products are convolutions alone; Gemm and Softmax stay float32.
TEST_CASE("assign_types/on_the_cpu") {
  const DeviceProfile cpu = cpu_profile(1);
  const Graph graph = after(classifier(), "assign_types", {.target = {cpu, parse_numerics("bf16")}});
  INFO(graph.dump());
  const Node &conv = only_node(graph, "Conv"), &gemm = only_node(graph, "Gemm");
  CHECK(type_of(graph, conv.outputs[0]) == DType::bf16);
  CHECK(type_of(graph, conv.inputs[1]) == DType::f32);
  CHECK(type_of(graph, only_node(graph, "Relu").outputs[0]) == DType::bf16);
  CHECK(type_of(graph, only_node(graph, "MaxPool").outputs[0]) == DType::bf16);
  CHECK(type_of(graph, only_node(graph, "Flatten").outputs[0]) == DType::bf16);
  CHECK(type_of(graph, gemm.inputs[0]) == DType::f32);
  CHECK(type_of(graph, graph.outputs[0]) == DType::f32);
  CHECK(casts(graph) <= 2);  // of the input, unless the convolution reads float32, and of the Gemm's input
  CHECK(after(classifier(), "assign_types", {.target = {cpu}}).dump() ==
        after(classifier(), "assign_types", {.target = {cpu, parse_numerics("fp32")}}).dump());
}

// The last product can read 16 bits itself, but reads float32 if a float32 form exists.
TEST_CASE("assign_types/the_last_product_reads_the_more_exact_form") {
  for (const bool float_first : {false, true}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {8, 64});
    const ValueId hidden = b.node("Relu", {b.node("Gemm", {x, b.weights({64, 512}), b.weights({512})})});
    if (float_first) b.output(b.node("Hardmax", {hidden}));
    const ValueId scores = b.node("Gemm", {hidden, b.weights({512, 10}), b.weights({10})});
    b.output(scores);
    const Graph graph = assigned(b.build(), "fp16");
    INFO(graph.dump());
    CHECK(type_of(graph, hidden) == DType::f16);
    CHECK(type_of(graph, graph.nodes.back().inputs[0]) == (float_first ? DType::f32 : DType::f16));
    CHECK(graph.nodes.back().outputs[0] == scores);
  }
}

// Normalizations between products store 16 bits; their known scales and biases stay float32, computed ones do not.
TEST_CASE("assign_types/normalizations") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {1, 16, 8, 8}), 16, 16, 3, 1);
  const ValueId norm = b.node("LayerNormalization", {x, b.weights({8}), b.weights({8})});
  const ValueId rms = b.node("RMSNormalization", {b.conv(norm, 16, 16, 3, 1), b.weights({8})}, {}, 23);
  const ValueId scale = b.node("Reshape", {b.node("GlobalAveragePool", {norm}), b.int64s({16})});
  const ValueId instance = b.node("InstanceNormalization", {b.conv(rms, 16, 16, 3, 1), scale, scale});
  const ValueId soft = b.node("Softmax", {instance}, {{"axis", std::int64_t{1}}});
  b.output(b.conv(soft, 16, 16, 3, 1));
  const Graph graph = assigned(b.build(), "fp16");
  INFO(graph.dump());
  CHECK(casts(graph) <= 2);  // of the input and the output
  for (const ValueId id : {norm, rms, scale, instance, soft}) CHECK(type_of(graph, id) == DType::f16);
  for (const char* const op : {"LayerNormalization", "RMSNormalization"})
    CHECK(type_of(graph, only_node(graph, op).inputs[1]) == DType::f32);
}

TEST_CASE("assign_types/layer_norm_with_a_residual") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {1, 16, 8, 8}), 16, 16, 3, 1);
  const ValueId norm = b.node("LayerNormalization", {b.conv(x, 16, 16, 1), b.weights({8}), b.weights({8})}, {}, 17);
  b.output(b.conv(b.node("Add", {x, norm}), 16, 16, 3, 1));
  const Graph graph = assigned(after(b.build(), "fuse_residual"), "fp16");
  INFO(graph.dump());
  CHECK(casts(graph) <= 2);  // of the input and the output
  const Node& sum = only_node(graph, "LayerNormalization");
  for (const std::size_t i : {0U, 3U}) CHECK(type_of(graph, sum.inputs[i]) == DType::f16);
  CHECK(type_of(graph, sum.outputs[0]) == DType::f16);
  CHECK(type_of(graph, sum.inputs[1]) == DType::f32);
}

// With an activation in it, too, BatchNormalization is no product: its input has the type of its output.
TEST_CASE("assign_types/batch_norm_with_an_activation") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {1, 16, 8, 8}), 16, 16, 3, 1);
  b.output(b.node("Add", {x, b.conv(b.node("Relu", {b.batch_norm(x, 16)}), 16, 16, 1)}));
  const Graph graph = assigned(after(b.build(), "fuse_activation"), "fp16");
  INFO(graph.dump());
  const Node& norm = only_node(graph, "BatchNormalization");
  CHECK(type_of(graph, norm.inputs[0]) == DType::f16);
  CHECK(type_of(graph, norm.inputs[1]) == DType::f32);
  CHECK(type_of(graph, norm.outputs[0]) == DType::f16);
}

// Such a Cast does not round. Without drop_identity it stays, and its readers get 16 bits by a Cast of their own.
TEST_CASE("assign_types/a_cast_of_float32_to_float32") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 16, 8, 8}), same = b.node("Cast", {x}, {{"to", dtype_to_onnx(DType::f32)}});
  b.output(b.conv(b.conv(same, 16, 16, 3, 1), 16, 16, 3, 1));
  const Graph graph = assigned(b.build(), "fp16");
  INFO(graph.dump());
  CHECK(casts(graph) == 3);
  CHECK(type_of(graph, graph.node(2).inputs[0]) == DType::f16);
  CHECK(graph.node(1).inputs[0] == same);
}

// Only a product's first factor is in 16 bits; an added operand is not, whatever computes it.
TEST_CASE("assign_types/what_a_product_adds_is_float32") {
  if constexpr (!cuda_built) return;  // gemm_cute computes this
  GraphBuilder b;
  const auto gemm = [&](ValueId x, ValueId c) { return b.node("Gemm", {x, b.weights({64, 64}), c}); };
  const ValueId x = gemm(b.input("x", {64, 64}), b.weights({64})), added = b.node("Relu", {gemm(x, b.weights({64}))});
  const ValueId y = gemm(x, added);
  b.output(gemm(b.node("Relu", {y}), b.weights({64})));
  const Graph graph = assigned(b.build(), "fp16");
  INFO(graph.dump());
  const Node& product = *std::ranges::find_if(graph.nodes, [&](const Node& node) { return node.outputs[0] == y; });
  CHECK(type_of(graph, added) == DType::f16);
  CHECK(type_of(graph, product.inputs[0]) == DType::f16);
  CHECK(type_of(graph, product.inputs[2]) == DType::f32);
  CHECK(type_of(graph, y) == DType::f16);
}

// Features between products: pooling, sorting and spreading keep their type, unlike indices and rulebooks.
TEST_CASE("assign_types/features_of_sites") {
  using Ints = std::vector<std::int64_t>;
  GraphBuilder b;
  const ValueId x = b.input("x", {9, 64}), indices = b.input("indices", {9, 3}, DType::i32);
  const ValueId book = b.input("book", {3 + 4 + 2 * 8}, DType::i32), sites = b.input("sites", {6, 3}, DType::i32);
  const AttributeList grid{{"spatial_shape", Ints{8, 8}}};
  const ValueId features = b.node("Gemm", {x, b.weights({64, 64}), b.weights({64})});
  const ValueId pooled =
      b.node("SparseMaxPool", {features, book, sites}, {{"kernel_shape", Ints{2, 2}}}, 1, 1, "lenslet");
  const ValueId dense = b.node("SparseToDense", {sites, pooled}, grid, 1, 1, "lenslet");
  b.output(b.conv(dense, 64, 64, 3, 1));
  b.output(b.node("Relu", {b.node("SparseToDense", {indices, x}, grid, 1, 1, "lenslet")}));
  const Graph graph = assigned(b.build(), "fp16");
  INFO(graph.dump());
  CHECK(type_of(graph, features) == DType::f16);
  CHECK(type_of(graph, pooled) == DType::f16);
  CHECK(type_of(graph, dense) == DType::f16);
  CHECK(type_of(graph, graph.outputs[1]) == DType::f32);  // not followed by a product
}

TEST_CASE("assign_types/outputs_keep_type_and_name") {
  GraphBuilder b;
  const ValueId first = b.conv(b.input("x", {-1, 16, 8, 8}), 16, 16, 3, 1);
  const ValueId second = b.conv(first, 16, 16, 3, 1);
  b.output(first);
  b.output(second);
  const Graph before = b.build(), graph = assigned(before, "fp16");
  INFO(graph.dump());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(type_of(graph, graph.outputs[i]) == DType::f32);
    CHECK(graph.value(graph.outputs[i]).name == before.value(before.outputs[i]).name);
  }
  CHECK(casts(graph) == 3);
}

TEST_CASE("assign_types/constants_that_halves_cannot_hold") {
  const auto type_with = [](float constant, const char* precision) {
    GraphBuilder b;
    const ValueId sum = b.node("Add", {b.conv(b.input("x", {-1, 16, 8, 8}), 16, 16, 3, 1), b.scalar(constant)});
    b.output(b.conv(sum, 16, 16, 3, 1));
    const Graph graph = assigned(b.build(), precision);
    return type_of(graph, only_node(graph, "Add").outputs[0]);
  };
  CHECK(type_with(3.0F, "fp16") == DType::f16);
  CHECK(type_with(1e5F, "fp16") == DType::f32);
  CHECK(type_with(1e5F, "bf16") == DType::bf16);
  CHECK(type_with(1e-9F, "fp16") == DType::f32);
  CHECK(type_with(0.0F, "fp16") == DType::f16);
}

// A learned position, of which some numbers are small: the values that it is added to, or stands beside, lose as much.
TEST_CASE("assign_types/small_numbers_beside_computed_values") {
  const auto type_with = [](const char* op, std::vector<float> constant) {
    GraphBuilder b;
    const ValueId x = b.conv(b.input("x", {1, 16, 1, 4}), 16, 16, 1);
    const ValueId c = b.constant(Tensor::of<float>(Shape{1, 1, 1, 4}, constant));
    const ValueId wide = b.node("Expand", {c, b.int64s({1, 16, 1, 4})});
    const bool joins = std::string_view(op) == "Concat";
    const ValueId y = joins ? b.node(op, {x, wide}, {{"axis", std::int64_t{1}}}) : b.node(op, {x, c});
    b.output(b.conv(y, joins ? 32 : 16, 16, 1));
    const Graph graph = assigned(after(b.build(), "fold_constants"), "fp16");
    return type_of(graph, only_node(graph, op).outputs[0]);
  };
  for (const char* const op : {"Add", "Sub", "Concat"}) {
    CAPTURE(op);
    CHECK(type_with(op, {0.02F, -3e-6F, 1e-9F, 0.01F}) == DType::f16);
    CHECK(type_with(op, {1e-6F, -3e-6F, 1e-9F, 1e-7F}) == DType::f32);  // all of it is small
    CHECK(type_with(op, {0.02F, -3e-6F, 1e-9F, 1e5F}) == DType::f32);
  }
  CHECK(type_with("Mul", {0.02F, -3e-6F, 1e-9F, 0.01F}) == DType::f32);
}

// A squeeze-and-excite branch, a pool that a convolution might fuse, a Gemm that is not the last.
TEST_CASE("assign_types/what_follows_chooses_kernels") {
  using Ints = std::vector<std::int64_t>;
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.conv(b.input("x", {-1, 3, 32, 32}), 3, 16, 3, 1)});
  const ValueId squeezed = b.node("GlobalAveragePool", {x});
  const ValueId excited = b.node("Sigmoid", {b.conv(b.node("Relu", {b.conv(squeezed, 16, 8, 1)}), 8, 16, 1)});
  const ValueId scaled = b.conv(b.node("Mul", {x, excited}), 16, 16, 3, 1);
  const ValueId pooled =
      b.node("MaxPool", {b.node("Relu", {scaled})}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  const ValueId hidden = b.node("Gemm", {b.node("Flatten", {pooled}), b.weights({4096, 64}), b.weights({64})});
  b.output(b.node("Gemm", {b.node("Relu", {hidden}), b.weights({64, 10}), b.weights({10})}));
  for (const std::int64_t batch : {1, 64})
    for (const char* const precision : {"fp16", "bf16"}) {
      const Graph graph =
          after_all(b.build(batch), {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
      INFO(graph.dump());
      for (const Node& node : graph.nodes) {
        if (node.op->alias_input() >= 0) continue;
        REQUIRE(node.choice != nullptr);
        if (node.type() == "Conv") CHECK(type_of(graph, node.outputs[0]) == parse_numerics(precision).storage);
      }
    }
}

TEST_CASE("assign_types/a_residual_and_a_concat") {
  GraphBuilder b;
  const ValueId x = b.conv(b.input("x", {-1, 16, 8, 8}), 16, 16, 3, 1);
  const ValueId sum = b.node("Add", {b.conv(x, 16, 16, 3, 1), x});
  const ValueId joined = b.node("Concat", {sum, x}, {{"axis", std::int64_t{1}}});
  b.output(b.conv(joined, 32, 16, 1));
  const Graph fused = after(after(b.build(), "fuse_residual"), "drop_dead"), graph = assigned(fused, "fp16");
  INFO(graph.dump());
  CHECK(casts(graph) == 2);
  for (const Node& node : graph.nodes)
    if (node.type() != "Cast") CHECK(type_of(graph, node.outputs[0]) == DType::f16);
}

// Upsampling between convolutions of images (LowFormer), dense and depthwise: no Cast and no change of format around
// it.
TEST_CASE("assign_types/transposed_convolutions") {
  for (const std::int64_t groups : {1, 64})
    for (const char* const precision : {"fp16", "bf16"}) {
      GraphBuilder b;
      const ValueId x = b.conv(b.input("x", {-1, 3, 28, 28}), 3, 64, 3, 1, 2);
      const ValueId up = b.node("ConvTranspose", {x, b.weights({64, 64 / groups, 4, 4}), b.weights({64})},
                                {{"strides", std::vector<std::int64_t>{2, 2}},
                                 {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                                 {"group", groups}});
      b.output(b.node("GlobalAveragePool", {b.conv(up, 64, 64, 1)}));
      const Graph graph =
          after_all(b.build(64), {.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"});
      INFO(graph.dump());
      CHECK(type_of(graph, only_node(graph, "ConvTranspose").outputs[0]) == parse_numerics(precision).storage);
      CHECK(casts(graph) == 1);  // of the network's output
      CHECK(count(graph, "LayoutConvert") == 0);
    }
}

namespace {

/// How a node of tests/ops/data/facts.txt stands in a network.
struct Around {
  std::optional<std::size_t> half = {};    ///< the only 16-bit input; none: each float32 input
  bool others_constant = false;            ///< the other float32 inputs, which are computed otherwise
  std::optional<std::size_t> output = {};  ///< the only one that is read; none: each
};

/// The node between values that are stored in the 16-bit type `half`.
Graph between_halves(const TextNode& text, const Around& around, DType half) {
  GraphBuilder b;
  const auto in_halves = [&](ValueId id) {
    const ValueId rounded = b.node("Cast", {id}, {{"to", dtype_to_onnx(half)}});
    return b.node("Relu", {b.node("Cast", {rounded}, {{"to", dtype_to_onnx(DType::f32)}})});
  };
  std::vector<ValueId> inputs;
  for (std::size_t i = 0; i < text.inputs.size(); ++i) {
    const TensorType& type = text.inputs[i].type;
    if (!text.inputs[i].present) {
      inputs.push_back(no_id);
    } else if (!text.constants[i].empty()) {
      inputs.push_back(b.constant(text.constants[i]));
    } else if (around.others_constant && type.dtype == DType::f32 && i != around.half) {
      inputs.push_back(b.weights(type.shape, 1, 0.1));
    } else {
      std::vector<std::int64_t> dims;
      for (int axis = 0; axis < type.shape.rank(); ++axis) dims.push_back(type.shape[axis]);
      inputs.push_back(b.input("x" + std::to_string(i), dims, type.dtype));
      if (type.dtype != DType::f32) continue;
      inputs.back() = around.half.value_or(i) == i ? in_halves(inputs.back()) : b.node("Sin", {inputs.back()});
    }
  }
  const std::shared_ptr<const Op> op = op_of(text);
  const std::vector<TensorType> types = infer_types(*op, text.inputs);
  const ValueId first = b.node_of(op, inputs, text.outputs);
  std::vector<bool> read(text.outputs);
  for (std::size_t i = 0; i < text.outputs; ++i) {
    read[i] = around.output.value_or(i) == i;
    const ValueId id = first + static_cast<ValueId>(i);
    if (read[i]) b.output(types[i].dtype == DType::f32 ? in_halves(id) : id);
  }
  Graph graph = b.build();
  for (Node& node : graph.nodes)
    if (node.op == op)
      for (std::size_t i = 0; i < text.outputs; ++i)
        if (!read[i]) node.outputs[i] = no_id;
  return graph;
}

/// The error of planning; empty: there is none.
std::string planning_error(const Graph& graph, DeviceKind kind, std::string_view precision) {
  DeviceProfile device = kind == DeviceKind::cuda ? reference_gpu() : cpu_profile(1);
  device.cublas_reason.clear();
  try {
    after_all(graph, {.target = {device, parse_numerics(precision)}});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

// Each operator, with each float input alone in 16 bits beside constants or computed float32, all in 16 bits, and each
// output the only one that is read. PreactivatedConv and SeparableConv are made later, of 16 bits.
TEST_CASE("assign_types/each_operator_that_runs_in_float32_runs_between_16_bits") {
  std::ifstream file(LENSLET_SOURCE_DIR "/tests/ops/data/facts.txt");
  std::set<std::string> operators;
  const bool reduced = std::getenv("LENSLET_TEST_REDUCED") != nullptr;
  std::size_t facts = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(' ') || (reduced && facts++ % 8 != 0)) continue;
    const TextNode text = parse_node(line);
    std::vector<Around> all{{}};
    for (std::size_t i = 0; i < text.inputs.size(); ++i)
      if (text.inputs[i].type.dtype == DType::f32 && text.constants[i].empty())
        for (const bool constant : {false, true}) all.push_back({.half = i, .others_constant = constant});
    const std::size_t inputs = all.size();
    for (std::size_t output = 0; text.outputs > 1 && output < text.outputs; ++output)
      for (std::size_t i = 0; i < inputs; ++i) {
        all.push_back(all[i]);
        all.back().output = output;
      }
    for (const Around& around : all)
      for (const char* const precision : {"fp16", "bf16"}) {
        std::optional<Graph> graph;
        try {
          graph = between_halves(text, around, parse_numerics(precision).storage);
        } catch (const Error&) {
          continue;  // the operator wants constants, or an input of the network cannot be of this type
        }
        for (const auto kind : {DeviceKind::cuda, DeviceKind::cpu}) {
          const bool on_cuda = kind == DeviceKind::cuda;
          if (!planning_error(*graph, kind, "fp32").empty()) continue;
          if (on_cuda) operators.insert(text.op);
          if (!on_cuda && precision == std::string_view("fp16")) continue;
          CAPTURE(line);
          CAPTURE(around.half.value_or(99));
          CAPTURE(around.others_constant);
          CAPTURE(around.output.value_or(99));
          CHECK(planning_error(*graph, kind, precision) == "");
        }
      }
  }
  if (reduced) return;  // not every operator was drawn
  for (const char* const later : {"Constant", "PreactivatedConv", "SeparableConv"}) operators.insert(later);
  for (const OpRow& row : op_table())
    if (!kernels_of(row.name, DeviceKind::cuda).empty())
      CHECK_MESSAGE(operators.contains(std::string(row.name)), std::string(row.name));
}
