// fuse_preactivation: on CUDA a 1x1 convolution also computes the BatchNormalization and activation before it.
#include <doctest/doctest.h>

#include <cstdint>
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

int joined(const Graph& graph) { return count(graph, "PreactivatedConv"); }

/// Between two blocks of ResNetV2: the sum is read as it is by the next sum, and behind `activation` by a 1x1.
struct Block {
  GraphBuilder b;
  ValueId sum, activated;

  explicit Block(std::string_view activation = "Relu", std::int64_t c = 256, std::int64_t size = 28) {
    const ValueId x = b.conv(b.input("x", {-1, 16, size, size}), 16, c, 1);
    sum = b.node("Add", {b.conv(x, c, c, 3, 1), x});
    activated = b.batch_norm(sum, c);
    if (!activation.empty()) activated = b.node(activation, {activated});
  }
  /// The next block's beginning and end: a bottleneck, and the sum.
  void bottleneck(ValueId from, std::int64_t c = 256) {
    b.output(b.node("Add", {b.conv(b.node("Relu", {b.conv(from, c, 64, 1)}), 64, c, 1), sum}));
  }
};

}  // namespace

TEST_CASE("fuse_preactivation/joins_into_every_reader") {
  for (const char* const precision : {"fp16", "bf16"})
    for (const char* const activation : {"Relu", ""}) {
      CAPTURE(precision);
      Block block(activation);
      block.bottleneck(block.activated);
      const Graph one = planned(block.b.build(64), precision);
      INFO(one.dump());
      const Node& node = only(one, "PreactivatedConv");
      CHECK(count(one, "BatchNormalization") == 0);
      REQUIRE(node.choice != nullptr);
      CHECK(node.choice->kernel->name() == "wgmma_preactivated");
      CHECK(node.choice->reason.find("us, apart") != std::string::npos);
      CHECK(node.op->describe(one.input_infos(node)).starts_with(*activation != 0 ? "relu; 64x256" : "none; 64x256"));
      // Attributes describe it completely.
      const auto again = make_normalised_op("PreactivatedConv", node.op->attributes(), node.inputs.size());
      CHECK(to_string(again->attributes()) == to_string(node.op->attributes()));
      CHECK((again->infer(one.input_infos(node)) == one.output_types(node)));
      // Without the pass, the BatchNormalization is a step.
      const Graph apart = planned(block.b.build(64), precision, "fuse_preactivation");
      CHECK((joined(apart) == 0 && count(apart, "BatchNormalization") == 1));
    }
  Block two;  // with a shortcut of stride 2
  two.bottleneck(two.activated);
  two.b.output(two.b.conv(two.activated, 256, 512, 1, 0, 2));
  const Graph both = planned(two.b.build(64));
  CHECK(joined(both) == 2);
  CHECK(count(both, "BatchNormalization") == 0);
}

TEST_CASE("fuse_preactivation/others_stay") {
  SUBCASE("on the CPU, in other arithmetic, for kernels by name") {
    Block block;
    block.bottleneck(block.activated);
    CHECK(joined(after_all(block.b.build(64))) == 0);
    for (const char* const precision : {"fp32", "tf32"}) CHECK(joined(planned(block.b.build(64), precision)) == 0);
    CHECK(joined(planned(block.b.build(64), "fp16", "", "mma_gemm")) == 0);
  }
  SUBCASE("read by a 3x3, too, or from outside") {
    Block block;
    block.bottleneck(block.activated);
    block.b.output(block.b.conv(block.activated, 256, 64, 3, 1));
    CHECK(joined(planned(block.b.build(64))) == 0);
    Block outside;
    outside.bottleneck(outside.activated);
    outside.b.output(outside.activated);
    CHECK(joined(planned(outside.b.build(64))) == 0);
  }
  SUBCASE("as the residual of a reader") {
    Block block;
    block.b.output(block.b.node("Add", {block.b.conv(block.activated, 256, 256, 1), block.activated}));
    block.b.output(block.sum);
    CHECK(joined(planned(block.b.build(64))) == 0);
  }
  SUBCASE("an activation that is no clamp") {
    Block block("HardSwish");
    block.bottleneck(block.activated);
    CHECK(joined(planned(block.b.build(64))) == 0);
  }
  SUBCASE("pads and groups") {
    for (const bool pads : {false, true}) {
      CAPTURE(pads);
      Block block;
      AttributeList attributes;
      if (pads)
        attributes.emplace_back("pads", Ints{1, 1, 1, 1});
      else
        attributes.emplace_back("group", std::int64_t{2});
      block.b.output(
          block.b.node("Conv", {block.activated, block.b.weights({64, pads ? 256 : 128, 1, 1})}, attributes));
      block.b.output(block.sum);
      CHECK(joined(planned(block.b.build(64))) == 0);
    }
  }
}
