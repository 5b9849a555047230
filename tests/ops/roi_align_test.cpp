// RoiAlign.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {

using Text = std::string;

namespace {

OpCase boxes(const Tensor& x, const std::vector<float>& corners, AttributeList attributes, std::int64_t opset = 16) {
  const auto count = static_cast<std::int64_t>(corners.size()) / 4;
  Tensor images(DType::i64, {count});
  for (std::int64_t i = 0; i < count; ++i) images.values<std::int64_t>()[std::size_t(i)] = i % x.shape()[0];
  return {.op = "RoiAlign",
          .opset = opset,
          .attributes = std::move(attributes),
          .inputs = {x, Tensor::of<float>({count, 4}, std::span<const float>(corners)), images},
          .tolerance = 1e-5};
}

}  // namespace

TEST_CASE("roi_align/every_way") {
  // Inside, across each border, far beyond, empty, reversed, larger than the image.
  const std::vector<float> corners{1.3F, 2.1F, 9.8F, 7.4F, -6.5F, -3, 4, 5, 9,   4,   30, 18,    50, 50, 60, 61,
                                   4,    4,    4,    4,    8,     7,  3, 2, -90, -80, 95, 80.5F, 0,  0,  12, 10};
  const Tensor x = random_f32({2, 3, 10, 12}, 1);
  for (const char* mode : {"avg", "max"})
    for (const char* from : {"half_pixel", "output_half_pixel"})
      for (const std::int64_t samples : {0, 1, 3})
        for (const double scale : {1.0, 0.25}) {
          const AttributeList attributes{{"mode", Text(mode)},        {"coordinate_transformation_mode", Text(from)},
                                         {"sampling_ratio", samples}, {"spatial_scale", scale},
                                         {"output_height", 3},        {"output_width", 2}};
          check_op(boxes(x, corners, attributes));
        }
  check_op(boxes(random_f32({1, 40, 7, 5}, 2), {0.5F, 0.5F, 4.25F, 6, 1, 2, 3, 3}, {{"output_width", 5}}));
  check_op(boxes(random_f32({1, 1, 1, 1}, 2), {0, 0, 1, 1}, {{"output_width", 2}}));
  check_op(boxes(random_f32({1, 2, 4, 4}, 2), {}, {}));
  check_op(boxes(x, corners, {{"spatial_scale", 0.5}}, 10));  // before half_pixel existed
  for (const std::int64_t samples : {3, 17})                  // more samples in a line, and in one bin, than are kept
    check_op(boxes(x, corners, {{"sampling_ratio", samples}, {"output_width", 40}}));
}

TEST_CASE("roi_align/no_numbers") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Tensor x = random_f32({1, 1, 6, 6}, 1);
  for (const char* mode : {"avg", "max"}) {
    const OpCase c =
        boxes(x, {0, 0, nan, 3, 0, -infinity, 3, 3, 1e30F, 0, 2e30F, 3, -1e6F, -1e6F, 1e6F, 1e6F, 1, 1, 4, 4},
              {{"mode", Text(mode)}});
    const Tensor y = run_op(c)[0];
    CHECK(std::isnan(y.values<float>()[0]));
    CHECK(std::isnan(y.values<float>()[1]));
    CHECK(y.values<float>()[2] == 0);
    CHECK(std::isfinite(y.values<float>()[3]));  // and the time does not exceed that of the image's size
    OpCase beyond = c;
    beyond.inputs[2] = int64s({1, -1, 1, 1, 7});
    const Tensor nowhere = run_op(beyond)[0];
    for (const float value : nowhere.values<float>()) CHECK(std::isnan(value));
    OpCase spoiled = c;
    spoiled.inputs[0] = x.clone();
    spoiled.inputs[0].values<float>()[2 * 6 + 2] = nan;
    CHECK(std::isnan(run_op(spoiled)[0].values<float>()[4]));
  }
}

TEST_CASE("roi_align/shapes_modes_and_sizes_that_make_no_sense_are_refused") {
  const Tensor x = random_f32({1, 2, 5, 4}, 1);
  OpCase c = boxes(x, {0, 0, 1, 1}, {});
  c.inputs[1] = random_f32({1, 5}, 1);
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c = boxes(x, {0, 0, 1, 1}, {});
  c.inputs[2] = int64s({0, 0});
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  CHECK(infer_error(boxes(random_f32({1, 2, 0, 4}, 1), {0, 0, 1, 1}, {})) == ErrorKind::invalid_model);
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"mode", Text("median")}})), unsupported, "attribute 'mode' is 'median'");
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"output_width", 0}})), invalid_model, "attribute 'output_width' is 0");
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"sampling_ratio", -1}})), invalid_model,
              "attribute 'sampling_ratio' is -1");
}

}  // namespace lenslet::test
