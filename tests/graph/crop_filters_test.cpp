#include <doctest/doctest.h>

#include <random>
#include <string>

#include "graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;
using Ints = std::vector<std::int64_t>;

namespace {

// The shape of filter `w` after cropping, in a convolution of x.
Shape cropped(const Shape& x, const Shape& w, const AttributeList& attributes) {
  GraphBuilder b;
  Ints dims;
  for (int axis = 0; axis < x.rank(); ++axis) dims.push_back(x[axis]);
  b.output(b.node("Conv", {b.input("x", dims), b.weights(w), b.weights({w[0]})}, attributes));
  const Graph before = b.build(x[0]), after_pass = after(before, "crop_filters");
  INFO(before.dump() << after_pass.dump());
  CHECK(worst_difference(before, after_pass) < 1e-5);
  return after_pass.value(only(after_pass, "Conv").inputs[1]).shape;
}

}  // namespace

TEST_CASE("crop_filters/by_hand") {
  const auto conv = [](std::int64_t pad, std::int64_t dilation) {
    return AttributeList{{"pads", Ints(4, pad)}, {"dilations", Ints{dilation, dilation}}};
  };
  CHECK(cropped({1, 4, 14, 14}, {5, 4, 3, 3}, conv(24, 24)) == Shape{5, 4, 1, 1});
  CHECK(cropped({1, 4, 14, 14}, {5, 4, 3, 3}, conv(12, 12)) == Shape{5, 4, 3, 3});
  CHECK(cropped({2, 4, 1, 9}, {5, 4, 3, 3}, conv(1, 1)) == Shape{5, 4, 1, 3});
  CHECK(cropped({1, 4, 2, 2}, {5, 4, 7, 7}, conv(3, 1)) == Shape{5, 4, 3, 3});
  CHECK(cropped({1, 4, 1, 1}, {4, 1, 3, 3}, {{"auto_pad", std::string("SAME_UPPER")}, {"group", std::int64_t{4}}}) ==
        Shape{4, 1, 1, 1});
  // The first row of taps begins in the padding, but its last output reads the image.
  CHECK(cropped({1, 4, 5, 5}, {5, 4, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}) ==
        Shape{5, 4, 3, 3});
  CHECK(cropped({1, 4, 2, 2}, {5, 4, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}) ==
        Shape{5, 4, 2, 2});
  CHECK(cropped({1, 4, 3}, {5, 4, 5}, {{"pads", Ints{8, 8}}, {"dilations", Ints{4}}}) == Shape{5, 4, 1});
  CHECK(cropped({1, 4, 1, 6, 7}, {5, 4, 3, 3, 3}, {{"pads", Ints{1, 0, 2, 1, 0, 2}}}) == Shape{5, 4, 1, 3, 3});
}

TEST_CASE("crop_filters/random_geometries") {
  std::mt19937 random(3);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int smaller = 0;
  for (int i = 0; i < 400; ++i) {
    Ints sizes, taps, strides, dilations, begins, ends;
    for (int axis = 0; axis < 2; ++axis) {
      sizes.push_back(draw(1, 6));
      taps.push_back(draw(1, 4));
      strides.push_back(draw(1, 3));
      dilations.push_back(draw(1, 4));
      begins.push_back(draw(0, 7));
      // At least one output.
      ends.push_back(
          std::max<std::int64_t>(draw(0, 7), (taps.back() - 1) * dilations.back() + 1 - sizes.back() - begins.back()));
    }
    CAPTURE(i);
    const Shape w{2, 3, taps[0], taps[1]};
    smaller +=
        cropped(
            {1, 3, sizes[0], sizes[1]}, w,
            {{"pads", Ints{begins[0], begins[1], ends[0], ends[1]}}, {"strides", strides}, {"dilations", dilations}}) ==
                w
            ? 0
            : 1;
  }
  CHECK(smaller > 40);
}

TEST_CASE("crop_filters/a_shared_filter_and_one_that_is_computed") {
  GraphBuilder b;
  const ValueId x = b.input("x", {1, 4, 6, 6}), w = b.weights({5, 4, 3, 3});
  b.output(b.node("Conv", {x, w}, {{"pads", Ints(4, 8)}, {"dilations", Ints{8, 8}}}));
  b.output(b.node("Conv", {x, w}, {{"pads", Ints(4, 1)}}));
  b.output(b.node("Conv", {x, b.input("computed", {5, 4, 3, 3})}, {{"pads", Ints(4, 8)}, {"dilations", Ints{8, 8}}}));
  const Graph before = b.build(), after_pass = after(before, "crop_filters");
  CHECK(after_pass.value(after_pass.nodes[0].inputs[1]).shape == Shape{5, 4, 1, 1});
  CHECK(after_pass.value(after_pass.nodes[1].inputs[1]).shape == Shape{5, 4, 3, 3});
  CHECK(after_pass.value(after_pass.nodes[2].inputs[1]).shape == Shape{5, 4, 3, 3});
  CHECK(worst_difference(before, after_pass) < 1e-5);
}
