// Passes on sparse convolutions: whatever is fused into Conv is fused into them, too.

#include <doctest/doctest.h>

#include <tuple>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

/// Every third cell of a plane of 6x7 is a site.
constexpr std::int64_t sites = 14, channels = 8;
Tensor indices() {
  Tensor tensor(DType::i32, {sites, 3});
  for (std::int64_t i = 0; i < sites; ++i) {
    std::int32_t* const row = tensor.values<std::int32_t>().data() + 3 * i;
    row[0] = 0;
    row[1] = static_cast<std::int32_t>(3 * i / 7);
    row[2] = static_cast<std::int32_t>(3 * i % 7);
  }
  return tensor;
}

struct SparseNet : GraphBuilder {
  ValueId x = input("x", {sites, channels});
  ValueId book = rulebook(constant(indices()));
  ValueId rulebook(ValueId of) {
    return node("SparseRulebook", {of}, {{"spatial_shape", Ints{6, 7}}, {"kernel_shape", Ints{3, 3}}}, 1, 1, "lenslet");
  }
  ValueId sparse_conv(ValueId from) {
    return node("SparseConv", {from, book, weights({channels, channels, 3, 3}, 0, 0.2)}, {}, 1, 1, "lenslet");
  }
};

}  // namespace

TEST_CASE("sparse/a_block_of_a_residual_network_is_two_convolutions") {
  SparseNet b;
  const ValueId inner = b.node("Relu", {b.batch_norm(b.sparse_conv(b.x), channels)});
  const ValueId outer = b.batch_norm(b.sparse_conv(inner), channels);
  b.output(b.node("Relu", {b.node("Add", {outer, b.x})}));
  const Graph before = b.build(), fused = after_all(before);
  CHECK(count(fused, "SparseConv") == 2);
  CHECK(count(fused, "SparseRulebook") == 0);  // constant for constant sites
  CHECK(fused.nodes.size() == 2);
  CHECK(fused.nodes[1].inputs.size() == 6);
  CHECK(fused.nodes[1].op->epilogue()->activation.kind == Activation::Kind::relu);
  CHECK_FALSE(fused.nodes[1].op->epilogue()->scale.empty());
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("sparse/scales_and_activations_of_features") {
  SparseNet b;
  const ValueId scaled = b.node("Mul", {b.sparse_conv(b.x), b.weights({1, channels})});
  b.output(b.node("LeakyRelu", {b.node("Add", {scaled, b.weights({channels})})}));
  const Graph before = b.build(), fused = after(after(before, "fold_scale"), "fuse_activation");
  CHECK(fused.nodes.size() == before.nodes.size() - 3);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("sparse/algorithms_are_chosen_by_name") {
  SparseNet b;
  b.output(b.sparse_conv(b.x));
  const Graph before = b.build();
  PassContext context = pass_context();
  for (const char* const name : {"gathered_tiles", "gather_scatter"}) {
    Graph graph = before;
    context.forced_algorithm = name;
    choose_kernels(graph, context);
    CHECK(only(graph, "SparseConv").choice->kernel->name() == name);
  }
  CHECK(only(after_all(before), "SparseConv").choice->kernel->name() == "gathered_tiles");
}

// On CUDA, in each precision: the kernels and their types. The encoder's last convolution produces images.
TEST_CASE("sparse/precisions_on_cuda") {
  SparseNet b;
  const ValueId deep = b.sparse_conv(b.node("Relu", {b.sparse_conv(b.x)}));
  const ValueId dense =
      b.node("SparseToDense", {b.constant(indices()), deep}, {{"spatial_shape", Ints{6, 7}}}, 1, 1, "lenslet");
  b.output(dense);
  const Graph before = b.build();
  for (const auto& [precision, kernel, type] :
       {std::tuple{"fp32", "neighbour_tiles", DType::f32}, std::tuple{"tf32", "neighbour_mma", DType::f32},
        std::tuple{"fp16", "neighbour_mma", DType::f16}, std::tuple{"bf16", "neighbour_mma", DType::bf16}}) {
    const Target target{reference_gpu(), parse_numerics(precision)};
    const Graph graph = after(before, "assign_types", {.target = target, .device = "cuda:0"});
    INFO(graph.dump());
    int convolutions = 0;
    for (const Node& node : graph.nodes) {
      if (node.type() != "SparseConv") continue;
      ++convolutions;
      const Problem problem(node.op, graph.input_infos(node), graph.output_types(node));
      const Choice choice = choose_kernel(problem, target, "it");
      CHECK(choice.kernel->name() == kernel);
      CHECK(problem.outputs()[0].dtype == type);
      CHECK(problem.inputs()[0].type.dtype == type);
      CHECK(problem.inputs()[2].type.dtype == DType::f32);
    }
    CHECK(convolutions == 2);
  }
}

// On CUDA a rulebook's step also makes its neighbour table for both convolutions; constant sites have a constant one.
TEST_CASE("sparse/a_table_of_neighbours_a_rulebook") {
  const auto planned = [](bool known, const char* precision, std::string_view without = {}, bool cuda = true) {
    SparseNet b;
    if (!known) b.book = b.rulebook(b.input("indices", {sites, 3}, DType::i32));
    b.output(b.sparse_conv(b.node("Relu", {b.sparse_conv(b.x)})));
    const PassContext context =
        cuda ? PassContext{.target = {reference_gpu(), parse_numerics(precision)}, .device = "cuda:0"} : pass_context();
    return after_all(b.build(), context, {std::string(without)});
  };
  const auto tables = [](const Graph& graph) {
    std::vector<ValueId> ids;
    for (const Node& node : graph.nodes)
      if (node.type() == "SparseConv") ids.push_back(node.inputs.size() > 6 ? node.inputs[6] : no_id);
    return ids;
  };
  for (const char* const precision : {"fp32", "tf32", "fp16"}) {
    const Graph made = planned(false, precision);
    INFO(made.dump());
    const Node& maker = only(made, "SparseRulebook");
    REQUIRE(maker.outputs.size() == 2);
    CHECK(tables(made) == std::vector<ValueId>(2, maker.outputs[1]));
    CHECK(made.value(maker.outputs[1]).shape == Shape{9, 16});
    CHECK(maker.choice->candidate.outputs.size() == 2);
    CHECK(made.value(maker.outputs[1]).typed);
    for (const Node& node : made.nodes)
      if (node.type() == "SparseConv") CHECK(node.choice->candidate.inputs.size() == node.inputs.size());

    const Graph known = planned(true, precision);
    const std::vector<ValueId> of_known = tables(known);
    REQUIRE(of_known.size() == 2);
    REQUIRE(of_known[0] != no_id);
    CHECK(of_known[0] == of_known[1]);
    const auto values = known.value(of_known[0]).constant.values<std::int32_t>();
    for (std::int64_t i = 0; i < 16; ++i)  // the centre's
      CHECK(values[static_cast<std::size_t>(4 * 16 + i)] == (i < sites ? i : -1));
  }
  CHECK(tables(planned(false, "fp16", "share_neighbours")) == std::vector<ValueId>(2, no_id));
  CHECK(tables(planned(false, "fp32", {}, false)) == std::vector<ValueId>(2, no_id));
}
