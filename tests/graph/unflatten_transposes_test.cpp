#include <doctest/doctest.h>

#include <random>

#include "graph_builder.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Dims = std::vector<std::int64_t>;

ValueId shaped(GraphBuilder& b, ValueId x, const Dims& dims) {
  const Shape shape{static_cast<std::int64_t>(dims.size())};
  return b.node("Reshape", {x, b.constant(Tensor::of<std::int64_t>(shape, dims))});
}

ValueId swapped(GraphBuilder& b, ValueId x, const Dims& perm = {0, 2, 1}) {
  return b.node("Transpose", {x}, {{"perm", perm}});
}

}  // namespace

TEST_CASE("unflatten_transposes/drawn_images_there_and_back") {
  std::mt19937 random(random_seed());
  const auto drawn = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 20; ++round) {
    const std::int64_t n = drawn(3), c = drawn(9), h = drawn(6), w = drawn(6);
    CAPTURE(n);
    CAPTURE(c);
    CAPTURE(h * 100 + w);
    GraphBuilder b;
    const ValueId x = b.input("x", {n, c, h, w}), tokens = b.input("tokens", {n, h * w, c});
    b.output(swapped(b, shaped(b, x, {n, c, -1})));
    b.output(shaped(b, swapped(b, tokens), {0, 0, h, w}));
    const Graph before = b.build(n), found = after(before, "unflatten_transposes");
    CHECK(worst_difference(before, found) == 0);
    CHECK(found.nodes.size() == 4);
    for (const Node& node : found.nodes)
      if (node.type() == "Transpose") CHECK(attribute<Dims>(*node.op, "perm")->size() == 4);
  }
}

TEST_CASE("unflatten_transposes/no_conversion_between_convolutions_and_tokens") {
  GraphBuilder b;
  const ValueId image = b.conv(b.input("x", {2, 8, 14, 14}), 8, 32, 3, 1);
  const ValueId tokens =
      b.node("LayerNormalization",
             {swapped(b, shaped(b, image, {2, 32, 196})), b.weights(Shape{32}), b.weights(Shape{32})}, {}, 17);
  const ValueId product = b.node("MatMul", {tokens, b.weights(Shape{32, 16})});
  b.output(b.conv(shaped(b, swapped(b, product), {2, 16, 14, 14}), 16, 24, 3, 1));
  const Graph before = b.build(2), all = after_all(before);
  CHECK(count(all, "Transpose") == 0);
  CHECK(count(all, "LayoutConvert") <= 3);  // at the network's ends, and a halo
  CHECK(count(after_all(before, {"unflatten_transposes"}), "Transpose") == 2);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("unflatten_transposes/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 4, 5}), tokens = b.input("tokens", {2, 20, 6});
  SUBCASE("channels in groups") { b.output(swapped(b, shaped(b, x, {4, 3, 20}))); }
  SUBCASE("lines as channels") { b.output(swapped(b, shaped(b, x, {2, 24, 5}))); }
  SUBCASE("another order") { b.output(swapped(b, shaped(b, x, {2, 6, 20}), {1, 2, 0})); }
  SUBCASE("heads of the tokens") { b.output(shaped(b, swapped(b, tokens), {2, 3, 2, 20})); }
  SUBCASE("five axes") { b.output(shaped(b, swapped(b, tokens), {2, 6, 2, 2, 5})); }
  SUBCASE("another reader of the flat image") {
    const ValueId flat = shaped(b, x, {2, 6, 20});
    b.output(swapped(b, flat));
    b.output(b.node("Relu", {flat}));
  }
  SUBCASE("a graph output between") {
    const ValueId first = swapped(b, tokens);
    b.output(first);
    b.output(shaped(b, first, {2, 6, 4, 5}));
  }
  const Graph before = b.build(2), found = after(before, "unflatten_transposes");
  CHECK(attribute<Dims>(*only(found, "Transpose").op, "perm")->size() == 3);
  CHECK(found.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, found) == 0);
}
