// sum_branches: sums over stacked branches become sums of images, with equal results; others stay.
#include <doctest/doctest.h>

#include <random>

#include "graph_builder.h"
#include "tests/random_seed.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

ValueId shaped(GraphBuilder& b, ValueId x, const Ints& dims) {
  const Shape shape{std::ssize(dims)};
  return b.node("Reshape", {x, b.constant(Tensor::of<std::int64_t>(shape, dims))});
}
ValueId reduced(GraphBuilder& b, const char* op, ValueId x, const Ints& axes, bool keep) {
  const AttributeList keeps{{"keepdims", std::int64_t{keep}}};
  const Shape shape{std::ssize(axes)};
  return b.node(op, {x, b.constant(Tensor::of<std::int64_t>(shape, axes))}, keeps, 18);
}
ValueId sum(GraphBuilder& b, ValueId stack, std::int64_t axis = 1) {
  return reduced(b, "ReduceSum", stack, {axis}, false);
}

struct Sizes {
  std::int64_t n = 2, r = 2, c = 8, h = 5, w = 6;
  Ints stack() const { return {n, r, c, h, w}; }
};

ValueId stacked(GraphBuilder& b, const std::vector<ValueId>& branches) {
  std::vector<ValueId> parts;
  for (const ValueId x : branches) parts.push_back(b.node("Unsqueeze", {x, b.int64s({1})}));
  return b.node("Concat", parts, {{"axis", std::int64_t{1}}});
}
/// Factors [N,R,C,1,1] of the mean [N,C,1,1]; they are one together.
ValueId factors(GraphBuilder& b, ValueId mean, const Sizes& s) {
  const ValueId scores = b.conv(mean, s.c, s.r * s.c, 1);
  return b.node("Softmax", {shaped(b, scores, {s.n, s.r, s.c, 1, 1})}, {{"axis", std::int64_t{1}}});
}
/// Of a stack: the factors from its sum's mean, and the sum with them.
ValueId selected(GraphBuilder& b, ValueId stack, const Sizes& s, bool factors_first = false) {
  const ValueId each = factors(b, reduced(b, "ReduceMean", sum(b, stack), {2, 3}, true), s);
  return sum(b, factors_first ? b.node("Mul", {each, stack}) : b.node("Mul", {stack, each}));
}

}  // namespace

TEST_CASE("sum_branches/selective_kernels") {
  std::mt19937 random(random_seed());
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 8; ++round) {
    const Sizes s{.n = draw(1, 3), .r = draw(2, 4), .c = 4 * draw(1, 4), .h = draw(2, 7), .w = draw(1, 7)};
    CAPTURE(s.r);
    GraphBuilder b;
    const ValueId x = b.input("x", {s.n, 4, s.h, s.w});
    std::vector<ValueId> branches;
    for (std::int64_t i = 0; i < s.r; ++i) branches.push_back(b.node("Relu", {b.conv(x, 4, s.c, 3, 1)}));
    b.output(b.conv(selected(b, stacked(b, branches), s, round % 2 == 0), s.c, 4, 1));
    const Graph before = b.build(s.n), found = after(before, "sum_branches"), all = after_all(before);
    CHECK(count(found, "ReduceSum") == 0);
    CHECK(count(found, "Concat") == 0);
    CHECK(worst_difference(before, found) < 1e-5);
    CHECK(worst_difference(before, all) < 1e-5);
    for (const Node& node : found.nodes) {
      const Shape& made = found.value(node.outputs[0]).shape;
      CHECK((made.rank() < 5 || made[3] * made[4] == 1));
    }
  }
}

TEST_CASE("sum_branches/split_attention") {
  const Sizes s;
  GraphBuilder b;
  const ValueId image = b.node("Relu", {b.conv(b.input("x", {s.n, 4, s.h, s.w}), 4, s.r * s.c, 3, 1)});
  bool sum_is_read = false;
  ValueId stack = shaped(b, image, s.stack()), mean = no_id;
  SUBCASE("ReduceMean") { mean = reduced(b, "ReduceMean", sum(b, stack), {2, 3}, true); }
  SUBCASE("GlobalAveragePool") { mean = b.node("GlobalAveragePool", {sum(b, stack)}); }
  SUBCASE("of a sum that is an output") {
    const ValueId summed = sum(b, stack);
    b.output(summed);
    mean = b.node("GlobalAveragePool", {summed});
    sum_is_read = true;
  }
  b.output(b.conv(sum(b, b.node("Mul", {stack, factors(b, mean, s)})), s.c, 4, 1));
  const Graph before = b.build(s.n), found = after(before, "sum_branches"), all = after_all(before);
  // The sum of the means, of R * C numbers.
  CHECK(count(found, "ReduceSum") == (sum_is_read ? 0 : 1));
  CHECK(count(found, "Split") == 2);  // of the image, once, and of the factors
  CHECK(worst_difference(before, found) < 1e-5);
  CHECK(worst_difference(before, all) < 1e-5);
  if (!sum_is_read) CHECK(count(all, "LayoutConvert") < count(after_all(before, {"sum_branches"}), "LayoutConvert"));
}

TEST_CASE("sum_branches/two_and_four_of_one_image") {
  GraphBuilder b;
  const ValueId image = b.node("Relu", {b.input("x", {1, 8, 4, 5})});
  b.output(sum(b, shaped(b, image, {1, 2, 4, 4, 5})));
  b.output(sum(b, shaped(b, image, {1, 4, 2, 4, 5})));
  const Graph before = b.build(), found = after(before, "sum_branches");
  CHECK(count(found, "ReduceSum") == 0);
  CHECK(worst_difference(before, found) < 1e-6);
}

TEST_CASE("sum_branches/stays") {
  const Sizes s;
  GraphBuilder b;
  const ValueId image = b.input("image", {s.n, s.r * s.c, s.h, s.w});
  ValueId stack = shaped(b, image, s.stack());
  SUBCASE("kept axes") { b.output(reduced(b, "ReduceSum", stack, {1}, true)); }
  SUBCASE("other axes") { b.output(sum(b, stack, 2)); }
  SUBCASE("two axes") { b.output(reduced(b, "ReduceSum", stack, {1, 2}, false)); }
  SUBCASE("a mean over R") { b.output(reduced(b, "ReduceMean", stack, {1}, false)); }
  SUBCASE("five branches") { b.output(sum(b, b.node("Relu", {b.input("y", {s.n, 5, s.c, s.h, s.w})}))); }
  SUBCASE("made by no image") { b.output(sum(b, b.node("Relu", {stack}))); }
  SUBCASE("channels that change fastest with R") {
    const Ints perm{0, 2, 1, 3, 4};
    stack = b.node("Transpose", {shaped(b, image, {s.n, s.c, s.r, s.h, s.w})}, {{"perm", perm}});
    b.output(sum(b, stack));
  }
  SUBCASE("factors for each pixel") { b.output(sum(b, b.node("Mul", {stack, b.input("y", {s.n, s.r, 1, s.h, s.w})}))); }
  SUBCASE("factors for all channels") { b.output(sum(b, b.node("Mul", {stack, b.input("y", {s.n, s.r, 1, 1, 1})}))); }
  SUBCASE("weighted branches that others read") {
    const ValueId weighted = b.node("Mul", {stack, b.input("y", {s.n, s.r, s.c, 1, 1})});
    b.output(weighted);
    b.output(sum(b, weighted));
  }
  SUBCASE("branches of a stack that are images of other sizes") {
    const ValueId other = shaped(b, b.input("y", {s.n, s.c, s.w, s.h}), {s.n, 1, s.c, s.h, s.w});
    b.output(sum(b, b.node("Concat", {other, other}, {{"axis", std::int64_t{1}}})));
  }
  const Graph before = b.build(s.n), found = after(before, "sum_branches");
  CHECK(found.nodes.size() == before.nodes.size());
  CHECK(worst_difference(before, after_all(before)) < 1e-5);
}
