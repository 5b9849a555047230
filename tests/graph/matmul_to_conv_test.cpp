// matmul_to_conv: products by constant weights join the convolutions' epilogues, with equal results.
#include <doctest/doctest.h>

#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId layer_norm(GraphBuilder& b, ValueId x, std::int64_t c) {
  return b.node("LayerNormalization", {x, b.weights({c}, 1, 0.1), b.weights({c})}, {}, 17);
}
ValueId linear(GraphBuilder& b, ValueId x, std::int64_t c, std::int64_t k) {
  return b.node("Add", {b.weights({k}), b.node("MatMul", {x, b.weights({c, k})})});
}
/// As PyTorch exports it.
ValueId gelu(GraphBuilder& b, ValueId x) {
  const ValueId erf = b.node("Erf", {b.node("Div", {x, b.scalar(1.41421356F)})});
  return b.node("Mul", {b.node("Mul", {x, b.node("Add", {erf, b.scalar(1)})}), b.scalar(0.5F)});
}
ValueId depthwise(GraphBuilder& b, ValueId x, std::int64_t c) {
  return b.node("Conv", {x, b.weights({c, 1, 7, 7}), b.weights({c})}, {{"group", c}, {"pads", Ints{3, 3, 3, 3}}});
}

}  // namespace

TEST_CASE("matmul_to_conv/a_block_of_convnext_is_five_steps") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 8, 9, 7});
  ValueId y = b.node("Transpose", {depthwise(b, x, 8)}, {{"perm", Ints{0, 2, 3, 1}}});
  y = linear(b, gelu(b, linear(b, layer_norm(b, y, 8), 8, 32)), 32, 8);
  y = b.node("Transpose", {y}, {{"perm", Ints{0, 3, 1, 2}}});
  b.output(b.node("Add", {b.node("Mul", {b.weights({8, 1, 1}), y}), x}));
  const Graph before = b.build(), all = after_all(before);
  INFO(all.dump());
  CHECK(count(all, "Conv") == 3);
  CHECK(count(all, "LayerNormalization") == 1);
  CHECK(count(all, "Gelu") == 0);  // the first product's activation
  CHECK(count(all, "MatMul") + count(all, "Add") + count(all, "Mul") + count(all, "Transpose") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("matmul_to_conv/the_sum_behind_a_product_is_its_residual") {
  for (const bool tokens : {false, true}) {
    GraphBuilder b;
    const ValueId x = tokens ? b.input("x", {3, 49, 64}) : b.input("x", {3, 9, 7, 64});
    const ValueId y = linear(b, gelu(b, linear(b, layer_norm(b, x, 64), 64, 128)), 128, 64);
    const ValueId sum = b.node("Add", {x, y});
    b.output(b.node("Add", {linear(b, sum, 64, 64), sum}));
    const Graph before = b.build(), all = after_all(before);
    INFO(all.dump());
    CHECK(count(all, "Add") + count(all, "Transpose") == 0);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("matmul_to_conv/a_sum_with_other_readers_of_the_product_stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 9, 7, 16}), y = linear(b, x, 16, 16);
  b.output(y);
  b.output(b.node("Add", {y, x}));
  const Graph before = b.build(), all = after_all(before);
  INFO(all.dump());
  CHECK(count(all, "Add") == 1);
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("matmul_to_conv/tokens_with_their_bias") {
  for (const std::int64_t batch : {1, 3}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {batch, 49, 64});
    b.output(linear(b, gelu(b, linear(b, x, 64, 128)), 128, 32));
    const Graph before = b.build(), converted = after(before, "matmul_to_conv"), all = after_all(before);
    CHECK(count(converted, "Conv") == 2);
    CHECK(count(converted, "MatMul") == 0);
    CHECK(count(converted, "Add") == 1);  // GELU's
    CHECK(worst_difference(before, converted) < 1e-5);
    INFO(all.dump());
    CHECK(count(all, "Transpose") + count(all, "Gelu") == 0);  // the first product's activation
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("matmul_to_conv/what_is_no_bias_is_added_behind") {
  GraphBuilder b;
  const ValueId y = b.node("MatMul", {b.input("x", {2, 3, 4, 6}), b.weights({6, 6})});
  SUBCASE("by row") { b.output(b.node("Add", {y, b.weights({4, 1})})); }
  SUBCASE("of as many rows as channels") { b.output(b.node("Add", {y, b.weights({1, 3, 4, 1})})); }
  SUBCASE("of higher rank") { b.output(b.node("Add", {y, b.weights({1, 1, 1, 1, 6})})); }
  SUBCASE("one for all") { b.output(b.node("Add", {y, b.weights({1})})); }
  SUBCASE("computed") { b.output(b.node("Add", {y, b.input("z", {6})})); }
  SUBCASE("to itself") { b.output(b.node("Add", {y, y})); }
  SUBCASE("the product has other readers") {
    b.output(y);
    b.output(b.node("Add", {y, b.weights({6})}));
  }
  const Graph before = b.build(), converted = after(before, "matmul_to_conv");
  CHECK(count(converted, "Add") == 1);
  CHECK(only(converted, "Conv").inputs.size() == 2);
  CHECK(worst_difference(before, converted) < 1e-5);
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}

TEST_CASE("matmul_to_conv/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 3, 4, 6});
  SUBCASE("weights are computed") { b.output(b.node("MatMul", {x, b.input("w", {6, 5})})); }
  SUBCASE("weights by image") { b.output(b.node("MatMul", {x, b.weights({2, 1, 6, 5})})); }
  SUBCASE("a vector") { b.output(b.node("MatMul", {x, b.weights({6})})); }
  SUBCASE("weights on the left") { b.output(b.node("MatMul", {b.weights({5, 4}), x})); }
  SUBCASE("a matrix") { b.output(b.node("MatMul", {b.input("m", {7, 6}), b.weights({6, 5})})); }
  SUBCASE("five axes") { b.output(b.node("MatMul", {b.input("v", {2, 2, 2, 2, 6}), b.weights({6, 5})})); }
  SUBCASE("nothing") { b.output(b.node("MatMul", {b.input("e", {2, 0, 6}), b.weights({6, 5})})); }
  SUBCASE("float64") {
    const Tensor w = Tensor::of<double>(Shape{6, 1}, {1, 2, 3, 4, 5, 6});
    b.output(b.node("MatMul", {b.input("d", {2, 3, 6}, DType::f64), b.constant(w)}));
  }
  const Graph before = b.build(), converted = after(before, "matmul_to_conv");
  CHECK(count(converted, "Conv") == 0);
  CHECK(converted.nodes.size() == before.nodes.size());
}
