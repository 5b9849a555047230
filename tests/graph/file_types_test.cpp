// Computation in 16 bits follows the file's types node by node, and an explicit Cast of the file rounds.

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/onnx_types.h"
#include "runtime/graph/file_types.h"
#include "runtime/graph/if_op.h"
#include "runtime/graph/infer_shapes.h"
#include "tests/graph/graph_builder.h"

namespace lenslet::test {

namespace {

constexpr DType halves[] = {DType::f16, DType::bf16};

/// After widening and inference.
Graph inferred(const Graph& raw) {
  Graph graph = after(raw, "widen");
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  graph.check();
  return graph;
}

Graph inferred(const GraphBuilder& b) { return inferred(b.raw()); }

/// As in a GPU's plan, without a precision or with the given one.
Graph typed_for_gpu(const Graph& raw, const char* asked = nullptr, bool of_file = false) {
  Graph graph = inferred(raw);
  const PassContext context{
      .target = {reference_gpu(), asked == nullptr ? numerics_in_file(graph) : parse_numerics(asked)},
      .device = "cuda:0",
      .types_of_file = asked == nullptr || of_file};
  for (const Pass& pass : passes().subspan(passes_before_inference)) {
    pass.run(graph, context);
    graph.check();
    if (pass.name == "assign_types") break;
  }
  return graph;
}

Graph typed_for_gpu(const GraphBuilder& b, const char* asked = nullptr) { return typed_for_gpu(b.raw(), asked); }

ValueId cast(GraphBuilder& b, ValueId id, DType to) { return b.node("Cast", {id}, {{"to", dtype_to_onnx(to)}}); }

Tensor rounded(const Tensor& tensor, DType half) { return tensor.to_dtype(half).to_dtype(DType::f32); }

/// y = (x W w1) w2: three products, of which the last would stay float32 in any precision.
void products(GraphBuilder& b, ValueId x, ValueId w) {
  ValueId y = b.node("Relu", {b.node("Gemm", {x, w})});
  y = b.node("Relu", {b.node("Gemm", {y, b.weights({64, 64})})});
  b.output(b.node("Gemm", {y, b.weights({64, 8})}));
}

bool any_in(const Graph& graph, DType dtype) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != no_id && graph.value(id).dtype == dtype; });
  });
}

/// A branch: the captured value's Cast to float32.
ValueId cast_by_branch(GraphBuilder& b, ValueId id) {
  GraphBuilder inner;
  const ValueId inside = inner.input("inside", {64, 64}, DType::f16);
  inner.output(cast(inner, inside, DType::f32));
  const auto branch = std::make_shared<const Graph>(inner.source());
  Tensor taken(DType::boolean, Shape{});
  taken.values<bool>()[0] = true;
  return b.node_of(std::make_shared<IfOp>(IfOp::Branch{branch}, IfOp::Branch{branch}), {b.constant(taken), id});
}

struct Way {
  const char* name;
  std::function<ValueId(GraphBuilder&, DType half, Tensor& w)> make;  // returns w in float32, as computed in the file
};

Tensor matrix(DType half) { return random_f32({64, 64}, 5, 0, 0.1).to_dtype(half); }

const Way ways[] = {
    {"Cast",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       return cast(b, b.constant(matrix(half)), DType::f32);
     }},
    {"Identity, Cast, Identity",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       return b.node("Identity", {cast(b, b.node("Identity", {b.constant(matrix(half))}), DType::f32)});
     }},
    {"Reshape, Cast, Reshape",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       const ValueId flat = b.node("Reshape", {b.constant(matrix(half)), b.int64s({4096})});
       return b.node("Reshape", {cast(b, flat, DType::f32), b.int64s({64, 64})});
     }},
    {"Transpose, Cast, Transpose",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       return b.node("Transpose", {cast(b, b.node("Transpose", {b.constant(matrix(half))}), DType::f32)});
     }},
    {"two readers",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       const ValueId constant = b.constant(matrix(half));
       b.output(b.node("Neg", {constant}));
       return cast(b, constant, DType::f32);
     }},
    {"CastLike",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       return b.node("CastLike", {b.constant(matrix(half)), b.scalar(1)}, {}, 15);
     }},
    {"Mul in 16 bits, Cast",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       const Tensor by = Tensor::of<float>(Shape{}, {0.7F}).to_dtype(half);
       // In float32 and unrounded, as ONNX Runtime computes it on the CPU.
       for (float& value : w.values<float>()) value *= by.to_dtype(DType::f32).values<float>()[0];
       return cast(b, b.node("Mul", {b.constant(matrix(half)), b.constant(by)}), DType::f32);
     }},
    {"DequantizeLinear of a scale in 16 bits, Cast",
     [](GraphBuilder& b, DType half, Tensor& w) {
       const Tensor scale = Tensor::of<float>(Shape{}, {0.0123F}).to_dtype(half);
       Tensor bytes(DType::i8, Shape{64, 64});
       w = Tensor(DType::f32, Shape{64, 64});
       for (std::size_t i = 0; i < 4096; ++i) {
         bytes.values<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 % 251 - 125);
         w.values<float>()[i] =
             static_cast<float>(bytes.values<std::int8_t>()[i]) * scale.to_dtype(DType::f32).values<float>()[0];
       }
       w = rounded(w, half);
       return cast(b, b.node("DequantizeLinear", {b.constant(bytes), b.constant(scale)}, {}, 19), DType::f32);
     }},
    {"ConstantOfShape of 16 bits, Cast",
     [](GraphBuilder& b, DType half, Tensor& w) {
       const Tensor value = Tensor::of<float>(Shape{1}, {0.3F}).to_dtype(half);
       w = Tensor(DType::f32, Shape{64, 64});
       std::ranges::fill(w.values<float>(), value.to_dtype(DType::f32).values<float>()[0]);
       return cast(b, b.node("ConstantOfShape", {b.int64s({64, 64})}, {{"value", value}}), DType::f32);
     }},
    {"Cast in a branch of an If",
     [](GraphBuilder& b, DType half, Tensor& w) {
       w = matrix(half).to_dtype(DType::f32);
       return cast_by_branch(b, b.constant(matrix(half)));
     }},
    {"Cast from float32 to 16 bits and back",
     [](GraphBuilder& b, DType half, Tensor& w) {
       const Tensor wide = random_f32({64, 64}, 6, 0, 0.1);
       w = rounded(wide, half);
       return cast(b, cast(b, b.constant(wide), half), DType::f32);
     }},
};

}  // namespace

TEST_CASE("file_types/weights_of_16_bits_in_float32_products") {
  for (const DType half : halves)
    for (const Way& way : ways) {
      CAPTURE(std::string(to_string(half)));
      CAPTURE(way.name);
      GraphBuilder b, plain;
      Tensor w;
      const ValueId x = b.input("x", {8, 64});
      products(b, x, way.make(b, half, w));
      const ValueId same_x = plain.input("x", {8, 64});
      products(plain, same_x, plain.constant(w));
      const Graph graph = inferred(b);
      INFO(graph.dump());
      CHECK(numerics_in_file(graph) == Numerics());
      CHECK(!any_in(typed_for_gpu(b), half));
      // Not even if the plan's type is a 16-bit one because of other nodes.
      CHECK(!any_in(typed_for_gpu(b.raw(), half == DType::f16 ? "fp16" : "bf16", true), half));
      const Tensor in = random_f32({8, 64}, 9);
      const auto got = interpret(after_all(graph), {in});
      CHECK(relative_error(interpret(after_all(inferred(plain)), {in})[0], got.back()) < 1e-6);
    }
}

TEST_CASE("file_types/a_file_of_16_bits") {
  for (const DType half : halves) {
    GraphBuilder b;
    const auto weights = [&](Shape shape) { return b.constant(random_f32(shape, 3).to_dtype(half)); };
    ValueId y = b.input("x", {8, 64}, half);
    ValueId products[3];
    for (ValueId& product : products) {
      product = b.node("Gemm", {y, weights({64, 64})});
      y = b.node("Add", {product, weights({64})});
      y = b.node("Clip", {y, b.scalar(-50), b.scalar(50)});  // from an operator that the loader expanded
    }
    b.output(y);
    const Graph graph = typed_for_gpu(b);
    INFO(graph.dump());
    CHECK(numerics_in_file(inferred(b)).storage == half);
    int in_half = 0;
    for (const Node& node : graph.nodes)
      if (node.op->epilogue() != nullptr) in_half += graph.value(node.outputs[0]).dtype == half ? 1 : 0;
    CHECK(in_half == 2);  // the last one stays float32
    Graph declared = b.raw();
    declared.output_ports[0].dtype = half;
    const Graph as_declared = typed_for_gpu(declared);
    CHECK(as_declared.value(as_declared.outputs[0]).dtype == half);
    CHECK(as_declared.value(as_declared.inputs[0]).dtype == half);
    CHECK(graph.value(graph.outputs[0]).dtype == DType::f32);
  }
}

// float16, float32, float16: each node computes in the file's types.
TEST_CASE("file_types/a_mixed_file") {
  for (const DType half : halves) {
    GraphBuilder b;
    const auto product = [&](ValueId x, DType dtype) {
      return b.node("Gemm", {x, b.constant(random_f32({64, 64}, 3).to_dtype(dtype))});
    };
    const ValueId x = b.input("x", {8, 64});
    const ValueId first = product(cast(b, x, half), half);
    const ValueId second = product(cast(b, first, DType::f32), DType::f32);
    const ValueId third = product(b.node("Relu", {second}), DType::f32);
    const ValueId fourth = product(cast(b, third, half), half);
    const ValueId bias = b.constant(random_f32({64}, 4).to_dtype(half));
    b.output(product(b.node("Add", {fourth, bias}), half));
    const Graph graph = typed_for_gpu(b);
    INFO(graph.dump());
    std::vector<DType> made;
    for (const Node& node : graph.nodes)
      if (node.op->epilogue() != nullptr) made.push_back(graph.value(node.outputs[0]).dtype);
    CHECK(made == std::vector<DType>{half, DType::f32, DType::f32, half, DType::f32});
    // With a precision: all but the last.
    const Graph asked = typed_for_gpu(b, half == DType::f16 ? "fp16" : "bf16");
    made.clear();
    for (const Node& node : asked.nodes)
      if (node.op->epilogue() != nullptr) made.push_back(asked.value(node.outputs[0]).dtype);
    CHECK(made == std::vector<DType>{half, half, half, half, DType::f32});
    CHECK(!any_in(typed_for_gpu(b, "tf32"), DType::f64));
  }
}

// If both 16-bit types do the same amount of work, float16 wins; a file's single operation counts.
TEST_CASE("file_types/what_computes_most_is_the_files_type") {
  const auto storage = [](std::int64_t f16, std::int64_t bf16) {
    GraphBuilder b;
    if (f16 > 0) b.output(b.node("Neg", {b.input("x", {f16}, DType::f16)}));
    if (bf16 > 0) b.output(b.node("Neg", {b.input("y", {bf16}, DType::bf16)}));
    return numerics_in_file(inferred(b)).storage;
  };
  CHECK(storage(1, 0) == DType::f16);
  CHECK(storage(0, 1) == DType::bf16);
  CHECK(storage(8, 8) == DType::f16);
  CHECK(storage(8, 9) == DType::bf16);
  CHECK(storage(9, 8) == DType::f16);
}

TEST_CASE("file_types/types_of_outputs") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 2, 4, 4}, DType::f16), grid = b.input("grid", {1, 3, 3, 2}, DType::f16);
  const ValueId bytes = b.input("bytes", {4}, DType::i8), wide = b.input("wide", {1, 2, 4, 4});
  const ValueId scale = b.constant(Tensor::of<float>(Shape{}, {0.5F}).to_dtype(DType::bf16));
  const ValueId sampled = b.node("GridSample", {x, grid}, {}, 16);
  const ValueId dequantised = b.node("DequantizeLinear", {bytes, scale}, {}, 19);
  const ValueId stated =
      b.node("DequantizeLinear", {bytes, b.scalar(0.5F)}, {{"output_dtype", dtype_to_onnx(DType::f16)}}, 23);
  const ValueId compared = b.node("Greater", {x, x}), averaged = b.node("GlobalAveragePool", {x});
  const ValueId mixed = b.node("Mul", {x, wide});  // the operator does not allow mixed types
  for (const ValueId id : {sampled, dequantised, stated, compared, averaged, mixed}) b.output(id);
  const Graph graph = inferred(b);
  INFO(graph.dump());
  CHECK(type_in_file(graph.value(sampled)) == DType::f16);
  CHECK(type_in_file(graph.value(dequantised)) == DType::bf16);
  CHECK(type_in_file(graph.value(stated)) == DType::f16);
  CHECK(type_in_file(graph.value(compared)) == DType::boolean);
  CHECK(type_in_file(graph.value(averaged)) == DType::f16);
  CHECK(type_in_file(graph.value(mixed)) == DType::f32);
  for (const ValueId id : {sampled, dequantised, stated, averaged, mixed}) CHECK(graph.value(id).dtype == DType::f32);
}

TEST_CASE("file_types/casts_round") {
  const Tensor x = random_f32({8, 64}, 11, 0, 100);
  for (const DType half : halves) {
    CAPTURE(std::string(to_string(half)));
    {
      GraphBuilder b;
      b.output(b.node("Neg", {cast(b, cast(b, b.node("Neg", {b.input("x", {8, 64})}), half), DType::f32)}));
      for (const Graph& graph : {inferred(b), after_all(inferred(b)), typed_for_gpu(b, "fp32"), typed_for_gpu(b)})
        CHECK(equal(interpret(graph, {x})[0], rounded(x, half)));
    }
    {  // cast to the type of another tensor, which is known only with shapes
      GraphBuilder b;
      const ValueId like = b.input("like", {1}, half);
      const ValueId small = b.node("CastLike", {b.input("x", {8, 64}), like}, {}, 15);
      b.output(b.node("CastLike", {small, b.scalar(1)}, {}, 15));
      for (const Graph& graph : {inferred(b), after_all(inferred(b))})
        CHECK(equal(interpret(graph, {Tensor::of<float>(Shape{1}, {0}).to_dtype(half), x})[0], rounded(x, half)));
    }
    {  // from bytes, by a 16-bit scale and with a stated type
      GraphBuilder b;
      const ValueId bytes = b.input("bytes", {8, 64}, DType::i8);
      const ValueId scale = b.constant(Tensor::of<float>(Shape{}, {0.0123F}).to_dtype(half));
      b.output(cast(b, b.node("DequantizeLinear", {bytes, scale}, {}, 19), DType::f32));
      b.output(cast(b,
                    b.node("DequantizeLinear", {bytes, b.scalar(0.0123F)}, {{"output_dtype", dtype_to_onnx(half)}}, 23),
                    DType::f32));
      Tensor given(DType::i8, Shape{8, 64}), by_scale(DType::f32, Shape{8, 64}), stated(DType::f32, Shape{8, 64});
      for (std::size_t i = 0; i < 512; ++i) {
        given.values<std::int8_t>()[i] = static_cast<std::int8_t>(i * 37 % 251 - 125);
        const auto byte = static_cast<float>(given.values<std::int8_t>()[i]);
        by_scale.values<float>()[i] = byte * rounded(Tensor::of<float>(Shape{}, {0.0123F}), half).values<float>()[0];
        stated.values<float>()[i] = byte * 0.0123F;
      }
      for (const Graph& graph : {inferred(b), after_all(inferred(b))}) {
        const auto outputs = interpret(graph, {given});
        CHECK(equal(outputs[0], rounded(by_scale, half)));
        CHECK(equal(outputs[1], rounded(stated, half)));
      }
    }
  }
}

// A Cast from float16 to float16, as in ONNX's expanded functions, does nothing.
TEST_CASE("file_types/casts_to_the_type_that_is_there") {
  GraphBuilder b;
  const ValueId x = b.input("x", {8, 64}, DType::f16);
  const ValueId sum = b.node("Add", {x, b.constant(Tensor::of<float>(Shape{}, {0.7F}).to_dtype(DType::f16))});
  b.output(b.node("Neg", {cast(b, sum, DType::f16)}));
  b.output(b.node("Neg", {sum}));
  const Graph graph = after_all(inferred(b));
  INFO(graph.dump());
  CHECK(count(graph, "Cast") == 1);
  const auto outputs = interpret(graph, {random_f32({8, 64}, 12, 0, 100).to_dtype(DType::f16)});
  CHECK(equal(outputs[0], outputs[1]));
}

TEST_CASE("file_types/casts_that_are_needed_once") {
  GraphBuilder b;
  const ValueId x = b.input("x", {8, 64});
  b.output(cast(b, x, DType::f16));
  Graph raw = b.raw();
  raw.output_ports[0].dtype = DType::f16;
  Graph graph = after(raw, "widen");
  bind_inputs(graph, 1, {});
  infer_shapes(graph);
  graph = after(graph, "drop_dead");
  INFO(graph.dump());
  CHECK(count(graph, "Cast") == 1);
  CHECK(graph.value(graph.outputs[0]).dtype == DType::f16);
  CHECK(graph.value(graph.outputs[0]).name == raw.value(raw.outputs[0]).name);

  // Between products stored in 16 bits there is nothing to do.
  GraphBuilder two;
  ValueId y = two.node("Gemm", {two.input("x", {8, 64}), two.weights({64, 64})});
  y = cast(two, cast(two, y, DType::f16), DType::f32);
  y = two.node("Gemm", {y, two.weights({64, 64})});
  two.output(two.node("Gemm", {y, two.weights({64, 64})}));
  const Graph asked = typed_for_gpu(two, "fp16");
  INFO(asked.dump());
  CHECK(count(asked, "Cast") <= 2);
  CHECK(asked.value(asked.nodes[1].outputs[0]).dtype == DType::f16);
}

}  // namespace lenslet::test
