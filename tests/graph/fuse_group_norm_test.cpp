// fuse_group_norm: the spelled normalisation becomes one step, with equal results; others stay.
#include <doctest/doctest.h>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// Scale and bias of the InstanceNormalization: random, or ones and zeros.
ValueId normalised(GraphBuilder& b, ValueId rows, std::int64_t groups, bool random) {
  const ValueId scale = b.weights({groups}, 1, random ? 0.3 : 0), bias = b.weights({groups}, 0, random ? 1 : 0);
  return b.node("InstanceNormalization", {rows, scale, bias}, {{"epsilon", 1e-4}});
}
ValueId reshaped(GraphBuilder& b, ValueId x, std::initializer_list<std::int64_t> sizes) {
  return b.node("Reshape", {x, b.int64s(sizes)});
}

}  // namespace

TEST_CASE("fuse_group_norm/spellings") {
  for (const std::int64_t groups : {1, 2, 3, 6})
    for (const bool random : {false, true})
      for (const bool image : {false, true}) {
        CAPTURE(groups);
        GraphBuilder b;
        const ValueId x = b.input("x", {2, 6, 4, 5});
        const ValueId rows = image ? reshaped(b, x, {2, groups, 24 / groups, 5}) : reshaped(b, x, {0, groups, -1});
        const ValueId y = reshaped(b, normalised(b, rows, groups, random), {2, 6, 4, 5});
        b.output(b.node("Add", {b.weights({1, 6, 1, 1}), b.node("Mul", {y, b.weights({6, 1, 1})})}));
        const Graph before = b.build(), fused = after(before, "fuse_group_norm");
        CHECK(fused.nodes.size() == 1);
        CHECK(integer_attribute(*only(fused, "GroupNormalization").op, "num_groups") == groups);
        CHECK(worst_difference(before, fused) < 1e-5);
        CHECK(worst_difference(before, after_all(before)) < 1e-5);
      }
}

TEST_CASE("fuse_group_norm/parts") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 4, 5});
  const ValueId rows = reshaped(b, x, {2, 2, 60}), norm = normalised(b, rows, 2, true);
  const ValueId y = reshaped(b, norm, {2, 6, 4, 5});
  std::size_t nodes = 1;
  SUBCASE("neither scale nor bias") { b.output(y); }
  SUBCASE("scale alone") { b.output(b.node("Mul", {b.weights({6, 1, 1}), y})); }
  SUBCASE("bias alone") { b.output(b.node("Add", {y, b.weights({6, 1, 1})})); }
  SUBCASE("the bias first") {
    b.output(b.node("Mul", {b.node("Add", {y, b.weights({6, 1, 1})}), b.weights({1, 6, 1, 1})}));
  }
  SUBCASE("a scale for each pixel stays") {
    nodes = 2;
    b.output(b.node("Mul", {y, b.weights({4, 5})}));
  }
  SUBCASE("a computed scale stays") {
    nodes = 2;
    b.output(b.node("Mul", {y, b.input("scale", {6, 1, 1})}));
  }
  SUBCASE("a third constant stays") {
    nodes = 2;
    const ValueId scaled = b.node("Mul", {y, b.weights({6, 1, 1})});
    b.output(b.node("Add", {b.node("Add", {scaled, b.weights({6, 1, 1})}), b.weights({6, 1, 1})}));
  }
  SUBCASE("read before the scale") {
    nodes = 2;
    b.output(y);
    b.output(b.node("Mul", {y, b.weights({6, 1, 1})}));
  }
  bool finite = true;
  SUBCASE("a product that is not finite stays") {
    nodes = 2;
    finite = false;
    b.output(b.node("Mul", {b.node("Mul", {y, b.scalar(1e30F)}), b.scalar(1e30F)}));
  }
  const Graph before = b.build(), fused = after(before, "fuse_group_norm");
  CHECK(fused.nodes.size() == nodes);
  CHECK(count(fused, "InstanceNormalization") == 0);
  if (finite) CHECK(worst_difference(before, fused) < 1e-5);
}

TEST_CASE("fuse_group_norm/stays") {
  GraphBuilder b;
  const ValueId x = b.input("x", {2, 6, 4, 5});
  SUBCASE("groups that do not divide the channels") {
    b.output(reshaped(b, normalised(b, reshaped(b, x, {2, 4, 30}), 4, true), {2, 6, 4, 5}));
  }
  SUBCASE("images together") {
    b.output(reshaped(b, normalised(b, reshaped(b, x, {1, 2, 120}), 2, true), {2, 6, 4, 5}));
  }
  SUBCASE("another shape behind it") {
    b.output(reshaped(b, normalised(b, reshaped(b, x, {2, 2, 60}), 2, true), {2, 6, 5, 4}));
  }
  SUBCASE("rows that others read") {
    const ValueId rows = reshaped(b, x, {2, 2, 60});
    b.output(b.node("Relu", {rows}));
    b.output(reshaped(b, normalised(b, rows, 2, true), {2, 6, 4, 5}));
  }
  SUBCASE("results that others read") {
    const ValueId norm = normalised(b, reshaped(b, x, {2, 2, 60}), 2, true);
    b.output(norm);
    b.output(reshaped(b, norm, {2, 6, 4, 5}));
  }
  SUBCASE("a computed scale") {
    const ValueId rows = reshaped(b, x, {2, 2, 60});
    const ValueId norm = b.node("InstanceNormalization", {rows, b.input("scale", {2}), b.weights({2})});
    b.output(reshaped(b, norm, {2, 6, 4, 5}));
  }
  SUBCASE("without a Reshape before it") { b.output(reshaped(b, normalised(b, x, 6, true), {2, 6, 4, 5})); }
  const Graph before = b.build(), fused = after(before, "fuse_group_norm");
  CHECK(count(fused, "InstanceNormalization") == 1);
  CHECK(fused.nodes.size() == before.nodes.size());
}
