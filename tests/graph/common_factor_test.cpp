// common_factor: x + x * g + c becomes x * (1 + g) + c, with equal results; others stay.
#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <vector>

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

TEST_CASE("common_factor/drawn_sums_of_two_products") {
  std::mt19937 random(random_seed());
  const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 16; ++round) {
    const std::int64_t n = draw(3), c = draw(9), h = draw(5), w = draw(5);
    GraphBuilder b;
    const ValueId x = b.input("x", {n, c, h, w}), gate = b.node("Tanh", {b.input("z", {n, c, h, w})});
    const ValueId other = round % 4 == 0   ? b.input("g", {n, c, 1, 1})
                          : round % 4 == 1 ? b.input("g", {n, 1, h, w})
                                           : b.weights(round % 4 == 2 ? Shape{1} : Shape{c, 1, 1});
    const ValueId one = b.node("Mul", round % 2 == 0 ? std::vector{x, gate} : std::vector{gate, x});
    const ValueId two = b.node("Mul", round % 3 == 0 ? std::vector{x, other} : std::vector{other, x});
    b.output(b.node("Add", round % 5 == 0 ? std::vector{two, one} : std::vector{one, two}));
    const Graph before = b.build(n), found = after(before, "common_factor");
    CAPTURE(round);
    CHECK(count(found, "Mul") == 1);
    CHECK(count(found, "Add") == 1);
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, after_all(before)) < 1e-5);
  }
}

TEST_CASE("common_factor/products_that_stay") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 8, 3, 3}), f = b.input("f", {2, 8, 3, 3}), g = b.input("g", {2, 8, 1, 1});
  const ValueId one = b.node("Mul", {x, f}), two = b.node("Mul", {x, g});
  SUBCASE("no common factor") { b.output(b.node("Add", {one, b.node("Mul", {b.input("other", {2, 8, 3, 3}), g})})); }
  SUBCASE("another reader") {
    b.output(b.node("Add", {one, two}));
    b.output(b.node("Relu", {one}));
  }
  SUBCASE("an activation") { b.output(b.node("Add", {b.node("Mul", {x, b.node("Sigmoid", {x})}), two})); }
  SUBCASE("a square") { b.output(b.node("Add", {b.node("Mul", {x, x}), two})); }
  SUBCASE("constants alone") {
    b.output(b.node("Add", {b.node("Mul", {x, b.weights({8, 1, 1})}), b.node("Mul", {x, b.weights({3, 3})})}));
  }
  SUBCASE("a common factor that broadcasts") {
    b.output(b.node("Add", {b.node("Mul", {g, f}), b.node("Mul", {g, b.input("other", {2, 8, 3, 3})})}));
  }
  const Graph before = b.build(2), found = after(before, "common_factor");
  CHECK(count(found, "Mul") == count(before, "Mul"));
  CHECK(worst_difference(before, found) == 0);
}

TEST_CASE("common_factor/constants_that_a_softmax_takes_out") {
  std::mt19937 random(random_seed());
  for (int round = 0; round < 24; ++round) {
    GraphBuilder b;
    const std::int64_t axis = round % 3 - 3;
    const Shape shapes[] = {{2, 5, 7}, {5, 7}, {7}, {1, 5, 1}, {5, 1}, {1}, {2, 1, 7}, {2, 1, 1}};
    const Shape shape = shapes[round / 3];
    const ValueId x = b.input("x", {2, 5, 7}), shift = b.weights(shape);
    const ValueId sum = b.node("Add", round % 2 == 0 ? std::vector{x, shift} : std::vector{shift, x});
    b.output(b.node(round % 4 < 2 ? "Softmax" : "LogSoftmax", {sum}, {{"axis", axis < -2 ? axis + 3 : axis}}));
    const Graph before = b.build(2), found = after(before, "common_factor");
    CAPTURE(round);
    const std::int64_t at = shape.rank() + axis;
    CHECK(count(found, "Add") == (at < 0 || shape[static_cast<int>(at)] == 1 ? 0 : 1));
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, after_all(before)) < 1e-5);
  }
}

TEST_CASE("common_factor/summands_that_a_softmax_keeps") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 5, 7});
  ValueId sum = no_id;
  SUBCASE("computed") { sum = b.node("Add", {x, b.input("c", {2, 5, 1})}); }
  SUBCASE("infinite") {
    sum = b.node("Add", {x, b.constant(Tensor::of<float>(Shape{1}, {-std::numeric_limits<float>::infinity()}))});
  }
  SUBCASE("so large that it rounds x") { sum = b.node("Add", {x, b.scalar(-1e9F)}); }
  SUBCASE("read by others") {
    sum = b.node("Add", {x, b.weights({5, 1})});
    b.output(b.node("Relu", {sum}));
  }
  SUBCASE("it makes x larger") { sum = b.node("Add", {b.input("row", {2, 1, 7}), b.weights({5, 1})}); }
  b.output(b.node("Softmax", {sum}));
  CHECK(count(after(b.build(2), "common_factor"), "Add") == 1);
}
