// common_factor: x + x * g + c becomes x * (1 + g) + c, with equal results; others stay.
#include <doctest/doctest.h>

#include <random>

#include "graph_builder.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

struct Norm {
  ValueId scale = no_id, shift = no_id;
};

/// The end of GlobalResponseNorm of x [N,C,H,W]: x + (shift + scale * (x * g)), g [N,C,1,1] computed of x.
ValueId response_norm(GraphBuilder& b, ValueId x, ValueId g, const Norm& norm, bool x_first, bool one) {
  const auto two = [&](const char* op, ValueId first, ValueId second) {
    return x_first ? b.node(op, {first, second}) : b.node(op, {second, first});
  };
  ValueId scaled = two("Mul", two("Mul", x, g), norm.scale);
  if (one) scaled = two("Mul", scaled, b.constant(Tensor::of<float>(Shape{}, {1.0F})));
  if (norm.shift != no_id) scaled = two("Add", scaled, norm.shift);
  return two("Add", x, scaled);
}

ValueId means(GraphBuilder& b, ValueId x) { return b.node("GlobalAveragePool", {x}); }

}  // namespace

TEST_CASE("common_factor/global_response_norm") {
  std::mt19937 random(random_seed());
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 16; ++round) {
    const std::int64_t n = draw(1, 3), c = draw(2, 17);
    const bool shift = round % 4 != 3, pads = round % 3 == 2;
    GraphBuilder b;
    const ValueId x = b.node("Relu", {b.conv(b.input("x", {n, 4, draw(3, 8), draw(3, 8)}), 4, c, 3, 1)});
    const Norm norm{b.weights({1, c, 1, 1}), shift ? b.weights({1, c, 1, 1}) : no_id};
    b.output(b.conv(response_norm(b, x, means(b, x), norm, round % 2 == 0, round % 5 == 0), c, 6, pads ? 3 : 1,
                    pads ? 1 : 0));
    const Graph before = b.build(n), found = after(before, "common_factor"), all = after_all(before);
    CAPTURE(round);
    CHECK(count(found, "Add") == (shift && pads ? 2 : 1));  // of one to the factor; the summand is in a bias else
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, all) < 1e-5);
    for (const Node& node : found.nodes)
      if (node.type() == "Mul" && found.value(node.outputs[0]).shape[2] > 1)
        CHECK(found.value(node.inputs[1]).shape == Shape{n, c, 1, 1});
  }
}

TEST_CASE("common_factor/what_stays") {
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.conv(b.input("x", {2, 4, 6, 6}), 4, 8, 3, 1)});
  const Norm norm{b.weights({1, 8, 1, 1}), b.weights({1, 8, 1, 1})};
  SUBCASE("the sum's operand is another value") {
    const ValueId other = b.node("Relu", {b.conv(x, 8, 8, 3, 1)});
    b.output(b.node("Add", {other, b.node("Mul", {x, means(b, x)})}));
  }
  SUBCASE("a factor of x's size") { b.output(b.node("Add", {x, b.node("Mul", {x, b.node("Sigmoid", {x})})})); }
  SUBCASE("a square") { b.output(b.node("Add", {x, b.node("Mul", {x, x})})); }
  SUBCASE("the product has another reader") {
    const ValueId product = b.node("Mul", {x, means(b, x)});
    b.output(b.node("Relu", {product}));
    b.output(b.node("Add", {x, product}));
  }
  SUBCASE("a summand inside the product") {
    const ValueId shifted = b.node("Add", {x, norm.shift});
    b.output(b.node("Add", {x, b.node("Mul", {shifted, means(b, x)})}));
  }
  SUBCASE("constants alone") { b.output(b.node("Add", {x, b.node("Mul", {x, norm.scale})})); }
  SUBCASE("a factor for each row and one for each column") {
    const ValueId rows = b.weights({1, 1, 6, 1}),
                  columns = b.node("ReduceMean", {x}, {{"axes", std::vector<std::int64_t>{1, 2}}});
    b.output(b.node("Add", {x, b.node("Mul", {b.node("Mul", {x, rows}), b.node("Mul", {columns, means(b, x)})})}));
  }
  const Graph before = b.build(2), found = after(before, "common_factor"), all = after_all(before);
  CHECK(count(found, "Add") == count(before, "Add"));
  CHECK(count(found, "Mul") == count(before, "Mul"));
  CHECK(worst_difference(before, all) < 1e-5);
}
