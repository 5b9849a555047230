// fold_input_scale: constant factors of a convolution's input go into its filters, with equal results.
#include <doctest/doctest.h>

#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// As PyTorch exports it.
ValueId gelu(GraphBuilder& b, ValueId x) {
  const ValueId erf = b.node("Erf", {b.node("Div", {x, b.scalar(1.41421356F)})});
  return b.node("Mul", {b.node("Mul", {x, b.node("Add", {erf, b.scalar(1)})}), b.scalar(0.5F)});
}

}  // namespace

TEST_CASE("fold_input_scale/nfnets_scale_each_activation") {
  for (const std::int64_t groups : {1, 2, 8}) {
    GraphBuilder b;
    ValueId y = b.node("Mul", {gelu(b, b.conv(b.input("x", {2, 4, 9, 7}), 4, 8, 3, 1)), b.scalar(1.7015F)});
    y = b.node("Conv", {y, b.weights({16, 8 / groups, 3, 3}), b.weights({16})},
               {{"group", groups}, {"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
    y = b.node("Mul", {b.weights({16, 1, 1}), b.node("Relu", {y})});
    b.output(b.conv(y, 16, 5, 1));
    const Graph before = b.build(2), all = after_all(before);
    INFO(all.dump());
    CHECK(count(all, "Mul") + count(all, "Gelu") + count(all, "Relu") + count(all, "ElementwiseChain") == 0);
    CHECK(count(after_all(before, {"fold_input_scale"}), "Mul") == 2);
    CHECK(worst_difference(before, all) < 1e-5);
  }
}

TEST_CASE("fold_input_scale/each_operator_where_nothing_is_padded") {
  for (const char* op : {"Mul", "Div", "Add", "Sub"})
    for (const bool constant_first : {false, true})
      for (const bool padded : {false, true}) {
        CAPTURE(op);
        CAPTURE(constant_first);
        CAPTURE(padded);
        GraphBuilder b;
        const ValueId x = b.node("Sigmoid", {b.input("x", {2, 4, 5, 7})}), c = b.weights({4, 1, 1}, 3, 0.5);
        b.output(b.conv(constant_first ? b.node(op, {c, x}) : b.node(op, {x, c}), 4, 6, 3, padded ? 1 : 0));
        const Graph before = b.build(2), found = after(before, "fold_input_scale");
        const bool scales = std::string_view(op) == "Mul" || std::string_view(op) == "Div";
        const bool folds = (scales || !padded) && !(std::string_view(op) == "Div" && constant_first);
        CHECK(found.nodes.size() == (folds ? 2 : 3));
        CHECK(worst_difference(before, found) < 1e-5);
      }
}

TEST_CASE("fold_input_scale/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 7, 7});
  SUBCASE("another reader") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)});
    b.output(b.node("Add", {b.conv(y, 4, 4, 1), y}));
  }
  SUBCASE("an output") {
    const ValueId y = b.node("Mul", {x, b.scalar(2)});
    b.output(y);
    b.output(b.conv(y, 4, 4, 1));
  }
  SUBCASE("a factor by pixel") { b.output(b.conv(b.node("Mul", {x, b.weights({7})}), 4, 4, 1)); }
  SUBCASE("a computed factor") { b.output(b.conv(b.node("Mul", {x, b.input("f", {4, 1, 1})}), 4, 4, 1)); }
  SUBCASE("a factor too large for filters of 16 bits") {
    b.output(b.conv(b.node("Mul", {x, b.scalar(1e4F)}), 4, 4, 1));
  }
  SUBCASE("one too small for them") { b.output(b.conv(b.node("Mul", {b.scalar(1e-4F), x}), 4, 4, 1)); }
  SUBCASE("a factor that overflows") { b.output(b.conv(b.node("Div", {x, b.scalar(0)}), 4, 4, 1)); }
  const Graph before = b.build();
  CHECK(after(before, "fold_input_scale").nodes.size() == before.nodes.size());
}
