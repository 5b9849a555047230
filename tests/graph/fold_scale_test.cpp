#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("fold_scale/after_conv") {
  for (const char* op : {"Mul", "Add", "Sub", "Div"})
    for (const Shape& shape : {Shape{6, 1, 1}, Shape{1, 6, 1, 1}, Shape{}, Shape{1}})
      for (const bool constant_first : {false, true}) {
        CAPTURE(op);
        CAPTURE(shape.str());
        CAPTURE(constant_first);
        GraphBuilder b;
        const ValueId y = b.conv(b.input("x", {2, 4, 5, 7}), 4, 6, 3, 1), c = b.weights(shape, 3, 0.5);
        b.output(constant_first ? b.node(op, {c, y}) : b.node(op, {y, c}));
        const Graph before = b.build(), folded = after(before, "fold_scale");
        const bool divides_by_conv = std::string_view(op) == "Div" && constant_first;
        CHECK(folded.nodes.size() == (divides_by_conv ? 2 : 1));
        CHECK(worst_difference(before, folded) < 1e-5);
      }
}

TEST_CASE("fold_scale/after_gemm") {
  GraphBuilder b;
  const ValueId y = b.node("Gemm", {b.input("x", {3, 5}), b.weights({5, 7}), b.weights({7})}, {{"beta", 0.5}});
  b.output(b.node("Add", {b.node("Mul", {y, b.weights({7})}), b.weights({1, 7})}));
  const Graph before = b.build(), folded = after(before, "fold_scale");
  CHECK(folded.nodes.size() == 1);
  CHECK(worst_difference(before, folded) < 1e-5);
}

TEST_CASE("fold_scale/stays") {
  GraphBuilder b;
  const ValueId y = b.conv(b.input("x", {1, 4, 7, 7}), 4, 7, 3, 1);
  SUBCASE("along the width") { b.output(b.node("Mul", {y, b.weights({7})})); }
  SUBCASE("by pixel") { b.output(b.node("Add", {y, b.weights({1, 7, 7, 7})})); }
  SUBCASE("widens the batch") { b.output(b.node("Add", {y, b.weights({2, 7, 1, 1})})); }
  SUBCASE("widens the rank") { b.output(b.node("Add", {y, b.weights({1, 1, 1, 1, 1})})); }
  SUBCASE("two readers") { b.output(b.node("Add", {b.node("Mul", {y, b.weights({7, 1, 1})}), y})); }
  SUBCASE("divides by zero") { b.output(b.node("Div", {y, b.scalar(0)})); }
  const Graph before = b.build(), folded = after(before, "fold_scale");
  CHECK(folded.nodes.size() == before.nodes.size());
}

// LayerScale of tokens [N,L,C] (DeiT III, CaiT, XCiT): the channels are the last axis.
TEST_CASE("fold_scale/of_tokens") {
  constexpr std::int64_t n = 3;
  GraphBuilder b;
  const ValueId x = b.input("x", {n, 12, 8});
  ValueId y = b.node("Add", {b.node("MatMul", {x, b.weights(Shape{8, 8})}), b.weights(Shape{8})});
  bool folded = true;
  SUBCASE("a factor for each channel") { y = b.node("Mul", {y, b.weights(Shape{8})}); }
  SUBCASE("first, with leading ones") { y = b.node("Mul", {b.weights(Shape{1, 1, 8}), y}); }
  SUBCASE("a factor for all, and summands") {
    y = b.node("Sub", {b.node("Div", {y, b.scalar(3)}), b.weights(Shape{8})});
  }
  SUBCASE("a factor for each token") {
    y = b.node("Mul", {y, b.weights(Shape{12, 1})});
    folded = false;
  }
  SUBCASE("a factor for each token and channel") {
    y = b.node("Mul", {y, b.weights(Shape{12, 8})});
    folded = false;
  }
  SUBCASE("computed factors") {
    y = b.node("Mul", {y, b.input("factors", {8})});
    folded = false;
  }
  b.output(b.node("Add", {x, y}));
  const Graph before = b.build(n), all = after_all(before);
  CHECK(static_cast<int>(all.nodes.size()) - count(all, "Reshape") - count(all, "Relabel") == (folded ? 1 : 2));
  CHECK(worst_difference(before, all) < 1e-5);
}

TEST_CASE("fold_scale/of_one_channel") {
  GraphBuilder b;
  const ValueId y = b.node("MatMul", {b.input("x", {2, 5, 8}), b.weights(Shape{8, 1})});
  b.output(b.node("Add", {b.node("Mul", {y, b.scalar(0.5F)}), b.weights(Shape{1, 1, 1})}));
  const Graph before = b.build(2), all = after_all(before);
  CHECK(count(all, "Mul") + count(all, "Add") == 0);
  CHECK(worst_difference(before, all) < 1e-5);
}
