// fuse_layer_norm: spelled normalisations become one step, with equal results; others stay.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

struct Spelling {
  Ints axes{-1};
  bool axes_as_input = false, by_product = false, by_reciprocal = false, distance_twice = false;
  float epsilon = 1e-5F;
};

ValueId mean(GraphBuilder& b, ValueId x, const Spelling& s) {
  if (!s.axes_as_input) return b.node("ReduceMean", {x}, {{"axes", s.axes}}, 13);
  const Shape count{static_cast<std::int64_t>(s.axes.size())};
  return b.node("ReduceMean", {x, b.constant(Tensor::of<std::int64_t>(count, std::span(s.axes)))}, {}, 18);
}
ValueId distance(GraphBuilder& b, ValueId x, const Spelling& s) { return b.node("Sub", {x, mean(b, x, s)}); }
/// Without scale and bias.
ValueId normalised(GraphBuilder& b, ValueId x, const Spelling& s = {}) {
  const ValueId d = distance(b, x, s), again = s.distance_twice ? distance(b, x, s) : d;
  const ValueId square = s.by_product ? b.node("Mul", {again, again}) : b.node("Pow", {again, b.scalar(2)});
  const ValueId root = b.node("Sqrt", {b.node("Add", {mean(b, square, s), b.scalar(s.epsilon)})});
  if (s.by_reciprocal) return b.node("Mul", {d, b.node("Reciprocal", {root})});
  return b.node("Div", {d, root});
}

}  // namespace

TEST_CASE("fuse_layer_norm/spellings") {
  const Spelling spellings[] = {{},
                                {.axes = {3}},
                                {.axes = {2, 3}},
                                {.axes = {-1, -2, -3}},
                                {.axes_as_input = true},
                                {.by_product = true},
                                {.by_reciprocal = true},
                                {.distance_twice = true},
                                {.epsilon = 0.25F}};
  for (const Spelling& s : spellings) {
    CAPTURE(s.axes.size());
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 3, 4, 5});
    const Shape row = s.axes.size() == 1 ? Shape{5} : s.axes.size() == 2 ? Shape{4, 5} : Shape{3, 4, 5};
    b.output(b.node("Add", {b.node("Mul", {normalised(b, x, s), b.weights(row)}), b.weights(row)}));
    const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
    CHECK(fused.nodes.size() == 1);
    CHECK(only(fused, "LayerNormalization").inputs.size() == 3);
    CHECK(worst_difference(before, fused) < 1e-5);
    CHECK(worst_difference(before, after_all(before)) < 1e-5);
  }
}

TEST_CASE("fuse_layer_norm/parts") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 5});
  std::size_t nodes = 1;
  SUBCASE("neither scale nor bias") { b.output(normalised(b, x)); }
  SUBCASE("scale alone, first") { b.output(b.node("Mul", {b.weights({5}), normalised(b, x)})); }
  SUBCASE("bias alone") { b.output(b.node("Add", {b.weights({1, 5}), normalised(b, x)})); }
  SUBCASE("a scale that is no row stays") {
    nodes = 2;
    b.output(b.node("Mul", {normalised(b, x), b.weights({3, 1})}));
  }
  SUBCASE("a bias of higher rank stays") {
    nodes = 2;
    b.output(b.node("Add", {normalised(b, x), b.weights({1, 1, 1, 5})}));
  }
  SUBCASE("a computed scale stays") {
    nodes = 2;
    b.output(b.node("Mul", {normalised(b, x), b.input("scale", {5})}));
  }
  SUBCASE("read before the scale") {
    nodes = 2;
    const ValueId y = normalised(b, x);
    b.output(y);
    b.output(b.node("Mul", {y, b.weights({5})}));
  }
  SUBCASE("what others read stays") {
    nodes = 3;
    const ValueId m = b.node("ReduceMean", {x}, {{"axes", Ints{-1}}}, 13), d = b.node("Sub", {x, m});
    const ValueId v = b.node("ReduceMean", {b.node("Mul", {d, d})}, {{"axes", Ints{-1}}}, 13);
    b.output(d);
    b.output(b.node("Div", {d, b.node("Sqrt", {b.node("Add", {b.scalar(1e-3F), v})})}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
  CHECK(fused.nodes.size() == nodes);
  CHECK(count(fused, "LayerNormalization") == 1);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_layer_norm/over_channels") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 4, 5});
  const ValueId y = b.node("Mul", {normalised(b, x, {.axes = {1}}), b.weights({6, 1, 1})});
  b.output(b.conv(b.node("Add", {y, b.weights({1, 6, 1, 1})}), 6, 3, 1));
  const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
  CHECK(count(fused, "LayerNormalization") == 1);
  CHECK(fused.nodes.size() == 4);  // between Transposes
  CHECK(worst_difference(before, fused) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("fuse_layer_norm/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 5}), z = b.input("z", {2, 3, 4, 5});
  const auto over = [&](ValueId d, ValueId squared, float power, const Ints& axes, ValueId epsilon) {
    const ValueId square = b.node("Pow", {squared, b.scalar(power)});
    const ValueId v = b.node("ReduceMean", {square}, {{"axes", axes}}, 13);
    return b.node("Div", {d, b.node("Sqrt", {b.node("Add", {v, epsilon})})});
  };
  const ValueId d = distance(b, x, {}), small = b.scalar(1e-5F);
  SUBCASE("axes in the middle") { b.output(normalised(b, x, {.axes = {2}})); }
  SUBCASE("axes apart") { b.output(normalised(b, x, {.axes = {1, 3}})); }
  SUBCASE("the variance over others") { b.output(over(d, d, 2, {2, 3}, small)); }
  SUBCASE("of another") { b.output(over(distance(b, z, {}), d, 2, {-1}, small)); }
  SUBCASE("cubes") { b.output(over(d, d, 3, {-1}, small)); }
  SUBCASE("around zero") { b.output(over(x, x, 2, {-1}, small)); }
  SUBCASE("a negative epsilon") { b.output(over(d, d, 2, {-1}, b.scalar(-1e-5F))); }
  SUBCASE("an epsilon for each") { b.output(over(d, d, 2, {-1}, b.weights({4, 1}, 1, 0.1))); }
  const Graph before = b.build(), fused = after(before, "fuse_layer_norm");
  CHECK(count(fused, "LayerNormalization") == 0);
  CHECK(fused.nodes.size() == before.nodes.size());
}
