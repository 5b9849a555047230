// fuse_separable: on CUDA the kernel of a 1x1 convolution also computes the depthwise convolution before it.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "graph_builder.h"
#include "ops/core/choose.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

Graph planned(const Graph& before, std::string_view precision = "fp16", std::string_view without = {},
              std::string_view forced = {}) {
  const PassContext context{.target = {reference_gpu(), parse_numerics(precision)},
                            .device = "cuda:0",
                            .forced_algorithm = std::string(forced),
                            .forced_where_accepted = true};
  return after_all(before, context, {std::string(without)});
}

ValueId clip(GraphBuilder& b, ValueId x) { return b.node("Clip", {x, b.scalar(0), b.scalar(6)}); }

ValueId depthwise(GraphBuilder& b, ValueId x, std::int64_t c, std::int64_t stride = 1, std::int64_t size = 3,
                  std::int64_t multiplier = 1) {
  return b.node("Conv", {x, b.weights({c * multiplier, 1, size, size}), b.weights({c * multiplier})},
                {{"pads", Ints(4, size / 2)}, {"strides", Ints{stride, stride}}, {"group", c}});
}

/// A block of MobileNetV2 with `c` channels, and its residual.
struct Block {
  GraphBuilder b;
  ValueId x, between, y;
  explicit Block(std::int64_t c = 144, std::int64_t stride = 1, std::int64_t window = 3, std::int64_t size = 56) {
    const ValueId input = b.conv(b.input("x", {-1, 16, size, size}), 16, 32, 1);
    x = clip(b, b.conv(input, 32, c, 1));
    between = clip(b, depthwise(b, x, c, stride, window));
    y = b.conv(between, c, 32, 1);
    if (stride == 1) y = b.node("Add", {y, input});
  }
};

}  // namespace

TEST_CASE("fuse_separable/joins_both_halves") {
  for (const char* const precision : {"fp16", "bf16", "tf32"})
    for (const std::int64_t batch : {1, 64})
      for (const std::int64_t stride : {1, 2}) {
        const bool tf32 = std::string_view(precision) == "tf32";
        if (tf32 && (stride == 2 || batch > 1)) continue;  // near a tie
        Block block(tf32 ? 32 : 144, stride, 3, tf32 ? 112 : 56);
        block.b.output(block.y);
        const Graph before = block.b.build(batch), all = planned(before, precision);
        INFO(all.dump());
        CHECK(count(planned(before, precision, "fuse_separable"), "SeparableConv") == 0);
        const Node& node = only(all, "SeparableConv");
        REQUIRE(node.choice != nullptr);
        CHECK(node.choice->kernel->name() == "separable");
        CHECK(node.choice->rows.size() == 3);
        CHECK(node.choice->candidate.estimated_us <
              node.choice->rows[1].candidate.estimated_us + node.choice->rows[2].candidate.estimated_us);
        CHECK((node.inputs.size() == 6 && (node.inputs[5] != no_id) == (stride == 1)));
        CHECK(node.op->describe(all.input_infos(node)).find("; -> 32 +bias") != std::string::npos);
        CHECK(count(all, "Conv") == 2);
        // Attributes describe it completely.
        const auto again = make_normalised_op("SeparableConv", node.op->attributes(), node.inputs.size());
        CHECK(to_string(again->attributes()) == to_string(node.op->attributes()));
        CHECK((again->infer(all.input_infos(node)) == all.output_types(node)));
      }
}

TEST_CASE("fuse_separable/only_in_the_formats_that_there_are") {
  Block block;
  block.b.output(block.y);
  const PassContext context{.target = {reference_gpu(), parse_numerics("fp16")}, .device = "cuda:0"};
  const Graph apart = planned(block.b.build(1), "fp16", "fuse_separable");
  const auto joined = [&](int changed) {
    Graph graph = apart;
    const auto is_depthwise = [](const Node& node) { return integer_attribute(*node.op, "group") == 144; };
    const auto depthwise = std::ranges::find_if(graph.nodes, is_depthwise), pointwise = depthwise + 1;
    REQUIRE(pointwise->type() == "Conv");
    const ValueId ids[] = {no_id, depthwise->inputs[0], pointwise->inputs[3], pointwise->outputs[0]};
    if (changed > 0) graph.value(ids[changed]).format = formats::nchw;
    fuse_separable(graph, context);
    return count(graph, "SeparableConv");
  };
  CHECK(joined(0) == 1);
  for (const int changed : {1, 2, 3}) CHECK(joined(changed) == 0);
}

TEST_CASE("fuse_separable/others_stay") {
  const auto joined = [](const Graph& graph) { return count(graph, "SeparableConv"); };
  SUBCASE("other arithmetic, other filters") {
    Block block;
    block.b.output(block.y);
    CHECK(joined(planned(block.b.build(1), "fp32")) == 0);
    Block larger(144, 1, 5);
    larger.b.output(larger.y);
    CHECK(joined(planned(larger.b.build(1))) == 0);
  }
  SUBCASE("on the CPU") {
    Block block;
    block.b.output(block.y);
    CHECK(joined(after_all(block.b.build(1))) == 0);
  }
  SUBCASE("read by others, or from outside") {
    Block block;
    block.b.output(block.y);
    block.b.output(block.between);
    CHECK(joined(planned(block.b.build(1))) == 0);
    Block twice;
    twice.b.output(twice.y);
    twice.b.output(twice.b.conv(twice.between, 144, 32, 1));
    CHECK(joined(planned(twice.b.build(1))) == 0);
  }
  SUBCASE("algorithms asked for by name") {
    Block block;
    block.b.output(block.y);
    CHECK(joined(planned(block.b.build(1), "fp16", "", "depthwise")) == 0);
    CHECK(joined(planned(block.b.build(1), "fp16", "", "mma_gemm")) == 0);
  }
  SUBCASE("a residual added to the depthwise one") {
    GraphBuilder b;
    const ValueId x = clip(b, b.conv(b.input("x", {-1, 16, 56, 56}), 16, 144, 1));
    const ValueId sum = b.node("Add", {depthwise(b, x, 144), b.node("Sigmoid", {x})});
    b.output(b.conv(sum, 144, 32, 1));
    const Graph all = planned(b.build(1));
    CHECK(joined(all) == 0);
    CHECK(count(all, "Add") == 0);  // fused into the depthwise one's epilogue
  }
  SUBCASE("3x3 behind it, and several filters a channel") {
    GraphBuilder b;
    const ValueId x = clip(b, b.conv(b.input("x", {1, 16, 14, 14}), 16, 64, 1));
    b.output(b.conv(depthwise(b, x, 64), 64, 32, 3, 1));
    b.output(b.conv(depthwise(b, x, 64, 1, 3, 2), 128, 32, 1));
    CHECK(joined(planned(b.build(1))) == 0);
  }
  SUBCASE("windows, groups, padding and strides of the second one") {
    const std::pair<Shape, AttributeList> others[] = {{{32, 144, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}}},
                                                      {{32, 144, 1, 3}, {{"auto_pad", std::string("SAME_UPPER")}}},
                                                      {{32, 144, 3, 1}, {{"auto_pad", std::string("SAME_UPPER")}}},
                                                      {{32, 72, 1, 1}, {{"group", std::int64_t{2}}}},
                                                      {{32, 144, 1, 1}, {{"pads", Ints{1, 1, 1, 1}}}},
                                                      {{32, 144, 1, 1}, {{"strides", Ints{2, 2}}}},
                                                      {{32, 144, 1, 1}, {}}};
    for (const auto& other : others) {  // clang 14 does not capture structured bindings
      const Shape& w = other.first;
      const AttributeList& attributes = other.second;
      CAPTURE(w.str());
      Block block;
      block.b.output(block.b.node("Conv", {block.between, block.b.weights(w), block.b.weights({32})}, attributes));
      CHECK(joined(planned(after(block.b.build(1), "drop_dead"))) == (attributes.empty() ? 1 : 0));
    }
  }
  SUBCASE("in one dimension") {
    GraphBuilder b;
    const ValueId x = b.node("Relu", {b.input("x", {1, 144, 3136})});
    const AttributeList each{{"group", std::int64_t{144}}, {"pads", Ints{1, 1}}};
    const ValueId between = b.node("Conv", {x, b.weights({144, 1, 3}), b.weights({144})}, each);
    b.output(b.node("Conv", {between, b.weights({32, 144, 1}), b.weights({32})}));
    CHECK(joined(planned(b.build(1))) == 0);
  }
}
