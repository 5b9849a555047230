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
