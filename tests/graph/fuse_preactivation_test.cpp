// fuse_preactivation: on CUDA a 1x1 convolution also computes the BatchNormalization and activation before it, or the
// LayerNormalization.
#include <doctest/doctest.h>

#include <cmath>
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
    if (activation == "Clip")
      activated = b.node("Clip", {activated, b.scalar(0), b.scalar(6)});
    else if (!activation.empty())
      activated = b.node(activation, {activated});
  }
  /// The next block's beginning and end: a bottleneck, and the sum.
  void bottleneck(ValueId from, std::int64_t c = 256) {
    b.output(b.node("Add", {b.conv(b.node("Relu", {b.conv(from, c, 64, 1)}), 64, c, 1), sum}));
  }
};

/// Half of a transformer block: tokens [N,L,C], which the sum behind the branch reads as they are, and their
/// LayerNormalization.
struct Tokens {
  GraphBuilder b;
  std::int64_t c;
  ValueId x, normalised;

  explicit Tokens(std::int64_t channels = 384, const AttributeList& attributes = {{"axis", std::int64_t{-1}}})
      : c(channels) {
    x = linear(b.input("x", {-1, 197, 64}), 64, c);
    normalised = b.node("LayerNormalization", {x, b.weights({c}, 1, 0.1), b.weights({c})}, attributes, 17);
  }
  ValueId linear(ValueId from, std::int64_t in, std::int64_t out) {
    const double deviation = 1 / std::sqrt(static_cast<double>(in));
    return b.node("Add", {b.node("MatMul", {from, b.weights({in, out}, 0, deviation)}), b.weights({out})});
  }
  /// A product of `from`, and the sum of another product of that and x.
  void branch(ValueId from) {
    b.output(b.node("Add", {linear(b.node("Relu", {linear(from, c, c * 2)}), c * 2, c), x}));
  }
};

void check_complete(const Graph& graph, const Node& node) {
  const auto again = make_normalised_op("PreactivatedConv", node.op->attributes(), node.inputs.size());
  CHECK(to_string(again->attributes()) == to_string(node.op->attributes()));
  CHECK((again->infer(graph.input_infos(node)) == graph.output_types(node)));
}

}  // namespace

TEST_CASE("fuse_preactivation/joins_into_every_reader") {
  for (const char* const precision : {"fp16", "bf16"})
    for (const std::string_view activation : {"Relu", "Clip"}) {
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
      CHECK(node.op->describe(one.input_infos(node))
                .starts_with(activation == "Relu" ? "relu; 64x256" : "clip(0,6); 64x256"));
      check_complete(one, node);
      // Without the pass, the BatchNormalization is a step.
      const Graph apart = planned(block.b.build(64), precision, "fuse_preactivation");
      CHECK((joined(apart) == 0 && count(apart, "BatchNormalization") == 1));
    }
  // With a shortcut of stride 2. Two readers keep a BatchNormalization without activation, too.
  for (const char* const activation : {"Relu", ""}) {
    Block two(activation);
    two.bottleneck(two.activated);
    two.b.output(two.b.conv(two.activated, 256, 512, 1, 0, 2));
    const Graph both = planned(two.b.build(64));
    INFO(both.dump());
    CHECK(joined(both) == 2);
    CHECK(count(both, "BatchNormalization") == 0);
  }
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

TEST_CASE("fuse_preactivation/joins_a_layer_normalization") {
  for (const char* const precision : {"fp16", "bf16"}) {
    CAPTURE(precision);
    Tokens tokens;
    tokens.branch(tokens.normalised);
    const Graph before = tokens.b.build(1), one = planned(before, precision);
    INFO(one.dump());
    CHECK(count(one, "LayerNormalization") == 0);
    const Node& node = only(one, "PreactivatedConv");
    REQUIRE(node.choice != nullptr);
    CHECK(node.choice->kernel->name() == "wgmma_layer_norm");
    CHECK(node.choice->reason.find("us, apart") != std::string::npos);
    CHECK(node.op->describe(one.input_infos(node)).starts_with("layer norm; "));
    CHECK(node.op->describe(one.input_infos(node)).ends_with("+bias +relu"));
    check_complete(one, node);
    // Without the pass, the LayerNormalization is a step.
    const Graph apart = planned(before, precision, "fuse_preactivation");
    CHECK((joined(apart) == 0 && count(apart, "LayerNormalization") == 1));
  }
}

TEST_CASE("fuse_preactivation/a_layer_normalization_without_shift") {
  Tokens tokens;
  tokens.branch(tokens.b.node("LayerNormalization", {tokens.x, tokens.b.weights({tokens.c}, 1, 0.1)},
                              {{"axis", std::int64_t{2}}, {"epsilon", 1e-6}}, 17));
  const Graph one = planned(tokens.b.build(1));
  INFO(one.dump());
  CHECK(count(one, "LayerNormalization") == 0);
  check_complete(one, only(one, "PreactivatedConv"));
}

TEST_CASE("fuse_preactivation/other_layer_normalizations_stay") {
  SUBCASE("on the CPU, in other arithmetic, for kernels by name") {
    Tokens tokens;
    tokens.branch(tokens.normalised);
    const Graph before = tokens.b.build(1);
    CHECK(joined(after_all(before)) == 0);
    for (const char* const precision : {"fp32", "tf32"}) CHECK(joined(planned(before, precision)) == 0);
    CHECK(joined(planned(before, "fp16", "", "mma_gemm")) == 0);
  }
  SUBCASE("read by the sum, too") {
    Tokens tokens;
    const ValueId y =
        tokens.linear(tokens.b.node("Relu", {tokens.linear(tokens.normalised, tokens.c, 768)}), 768, tokens.c);
    tokens.b.output(tokens.b.node("Add", {y, tokens.normalised}));
    CHECK(joined(planned(tokens.b.build(1))) == 0);
  }
  SUBCASE("an output") {
    Tokens tokens;
    tokens.branch(tokens.normalised);
    tokens.b.output(tokens.normalised);
    CHECK(joined(planned(tokens.b.build(1))) == 0);
  }
  SUBCASE("two products, which would take its moments twice") {
    Tokens tokens;
    tokens.branch(tokens.normalised);
    tokens.b.output(tokens.linear(tokens.normalised, tokens.c, 768));
    CHECK(joined(planned(tokens.b.build(1))) == 0);
  }
  SUBCASE("more tiles than multiprocessors hold at once") {
    Tokens tokens;
    tokens.branch(tokens.normalised);
    CHECK(joined(planned(tokens.b.build(64))) == 0);
  }
  SUBCASE("channels that fill no 16 bytes") {
    Tokens tokens(388);
    tokens.branch(tokens.normalised);
    CHECK(joined(planned(tokens.b.build(1))) == 0);
  }
  SUBCASE("a residual") {
    Tokens tokens;
    tokens.branch(tokens.b.node("Add", {tokens.normalised, tokens.x}));
    const Graph all = planned(tokens.b.build(1));
    CHECK(joined(all) == 0);
    CHECK(only(all, "LayerNormalization").inputs.size() == 4);
  }
  SUBCASE("over tokens and channels") {
    Tokens tokens;
    GraphBuilder& b = tokens.b;
    tokens.branch(b.node("LayerNormalization", {tokens.x, b.weights({197, 384}, 1, 0.1), b.weights({197, 384})},
                         {{"axis", std::int64_t{1}}}, 17));
    const Graph all = planned(b.build(1));
    CHECK(joined(all) == 0);
    CHECK(count(all, "LayerNormalization") == 1);
    Tokens by_channels(384, {{"axis", std::int64_t{1}}});  // scale and shift of a row's channels
    by_channels.branch(by_channels.normalised);
    CHECK(joined(planned(by_channels.b.build(1))) == 0);
  }
}
