#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("fuse_residual/block_with_relu") {
  for (const bool conv_first : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {2, 8, 7, 5});
    const ValueId y = b.conv(b.node("Relu", {b.conv(x, 8, 8, 3, 1)}), 8, 8, 3, 1);
    b.output(b.node("Relu", {conv_first ? b.node("Add", {y, x}) : b.node("Add", {x, y})}));
    const Graph before = b.build(), fused = after(after(before, "fuse_activation"), "fuse_residual");
    CHECK(fused.nodes.size() == 2);
    CHECK(fused.nodes[1].inputs.size() == 4);
    CHECK(fused.nodes[1].op->epilogue()->activation.kind == Activation::Kind::relu);
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_residual/the_later_of_two_convolutions") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 8, 8, 8});
  const ValueId main = b.conv(b.conv(x, 8, 16, 3, 1, 2), 16, 16, 3, 1), shortcut = b.conv(x, 8, 16, 1, 0, 2);
  b.output(b.node("Relu", {b.node("Add", {main, shortcut})}));
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == 3);
  CHECK(fused.nodes[2].inputs[3] == main);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_residual/operand_made_after_the_convolution") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), y = b.conv(x, 4, 4, 3, 1), z = b.node("Sigmoid", {x});
  b.output(b.node("Add", {y, z}));
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == 2);
  CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_residual/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), y = b.conv(x, 4, 4, 3, 1);
  SUBCASE("broadcast") { b.output(b.node("Add", {y, b.input("z", {1, 4, 1, 1})})); }
  SUBCASE("convolution broadcast") { b.output(b.node("Add", {y, b.input("z", {2, 4, 6, 6})})); }
  SUBCASE("used elsewhere") {
    b.output(b.node("Add", {y, x}));
    b.output(b.node("Sigmoid", {y}));
  }
  SUBCASE("graph output") {
    b.output(b.node("Add", {y, x}));
    b.output(y);
  }
  SUBCASE("constant") { b.output(b.node("Add", {b.weights({1, 4, 6, 6}), y})); }
  SUBCASE("other arithmetic") {
    b.output(b.node("Sub", {y, x}));
    b.output(b.node("Max", {b.conv(x, 4, 4, 1), x}));
  }
  SUBCASE("three") { b.output(b.node("Sum", {y, x, b.node("Neg", {x})})); }
  SUBCASE("to a product that adds nothing") {
    const ValueId rows = b.input("rows", {3, 5});
    b.output(b.node("Add", {b.node("Gemm", {rows, b.weights({5, 5}), b.weights({5})}), rows}));
    b.output(y);
  }
  SUBCASE("an activation alone") { b.output(b.node("Relu", {y})); }
  SUBCASE("twice itself") { b.output(b.node("Add", {y, y})); }
  const Graph before = b.build(), fused = after(before, "fuse_residual");
  CHECK(fused.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, fused) == 0);
}

TEST_CASE("fuse_residual/one_sum_a_convolution") {
  for (const bool bias : {true, false}) {
    GraphBuilder b;
    const ValueId x = b.input("x", {1, 4, 6, 6}), z = b.input("z", {1, 4, 6, 6}), w = b.weights({4, 4, 1, 1});
    const ValueId y = bias ? b.node("Conv", {x, w, b.weights({4})}) : b.node("Conv", {x, w});
    b.output(b.node("Relu", {b.node("Add", {b.node("Sum", {y, z}), x})}));
    const Graph before = b.build(), fused = after(before, "fuse_residual");
    INFO(fused.dump());
    REQUIRE(fused.nodes.size() == 3);
    CHECK(fused.nodes[0].inputs[3] == z);
    CHECK(fused.nodes[0].name == before.nodes[0].name);
    CHECK(fused.nodes[1].type() == "Add");
    CHECK(worst_difference(before, fused) < 1e-5);
  }
}

TEST_CASE("fuse_residual/not_after_an_activation") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6});
  b.output(b.node("Add", {b.node("Relu", {b.conv(x, 4, 4, 3, 1)}), x}));
  const Graph before = b.build(), fused = after(after(before, "fuse_activation"), "fuse_residual");
  CHECK(fused.nodes.size() == 2);
  CHECK(worst_difference(before, fused) < 1e-5);
}

// The last stages of TinyViT and GCViT: an image of [N,H,W,C] is one window of tokens for the product.
TEST_CASE("fuse_residual/behind_views_of_tokens") {
  constexpr std::int64_t n = 3;
  GraphBuilder b;
  const ValueId x = b.node("Relu", {b.input("x", {n, 3, 4, 8})});
  const ValueId tokens = b.node("Reshape", {x, b.int64s({n, 12, 8})});
  const ValueId product = b.node("Add", {b.node("MatMul", {tokens, b.weights(Shape{8, 8})}), b.weights(Shape{8})});
  ValueId seen = b.node("Reshape", {product, b.int64s({n, 3, 4, 8})});
  bool joined = true;
  SUBCASE("as it is") {}
  SUBCASE("through another view") {
    seen = b.node("Reshape", {b.node("Reshape", {seen, b.int64s({n, 1, 3, 4, 8})}), b.int64s({n, 3, 4, 8})});
  }
  SUBCASE("with another reader") {
    b.output(seen);
    joined = false;
  }
  b.output(b.node("Add", {x, seen}));
  const Graph before = b.build(n), all = after_all(before);
  CHECK(count(all, "Add") == (joined ? 0 : 1));
  CHECK(worst_difference(before, all) < 1e-5);
}
