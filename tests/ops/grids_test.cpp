// GridSample, AffineGrid and RoiAlign.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Text = std::string;

/// Weights are rounded, and a sum rounds once a tap; the kernels state more.
constexpr double blended = 4e-6;

OpCase sampled(const Tensor& x, const Tensor& grid, const char* mode, const char* padding, bool align_corners) {
  return {.op = "GridSample",
          .opset = 20,
          .attributes = {{"mode", Text(mode)},
                         {"padding_mode", Text(padding)},
                         {"align_corners", std::int64_t{align_corners}}},
          .inputs = {x, grid},
          .tolerance = Text(mode) == "nearest" ? 0 : blended};
}

OpCase affine(Shape theta, const Tensor& size, bool align_corners) {
  return {.op = "AffineGrid",
          .opset = 20,
          .attributes = {{"align_corners", std::int64_t{align_corners}}},
          .inputs = {random_f32(theta, 5), size},
          .constant = {1},
          .tolerance = 0x1p-22};
}

}  // namespace

TEST_CASE("grid_sample/every_way") {
  const Tensor x = random_f32({2, 3, 5, 7}, 1), grid = random_of(DType::f32, {2, 4, 19, 2}, 2, -1.4, 1.4);
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool align : {false, true}) {
        check_op(sampled(x, grid, mode, padding, align));
        // Far beyond: reflected more than once.
        check_op(sampled(x, random_of(DType::f32, {2, 3, 5, 2}, 3, -9, 9), mode, padding, align));
      }
}

TEST_CASE("grid_sample/shapes") {
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"}) {
      const auto grid = [&](Shape shape) { return random_of(DType::f32, shape, 4, -1.2, 1.2); };
      check_op(sampled(random_f32({1, 1, 1, 1}, 1), grid({1, 3, 3, 2}), mode, padding, true));
      check_op(sampled(random_f32({1, 2, 1, 6}, 1), grid({1, 1, 130, 2}), mode, padding, true));
      check_op(sampled(random_f32({2, 37, 6, 5}, 1), grid({2, 3, 5, 2}), mode, padding, false));
      check_op(sampled(random_f32({1, 70, 4, 4}, 1), grid({1, 2, 2, 2}), mode, padding, false));
      check_op(sampled(random_f32({0, 3, 4, 4}, 1), grid({0, 2, 2, 2}), mode, padding, false));
      check_op(sampled(random_f32({1, 3, 4, 4}, 1), grid({1, 0, 2, 2}), mode, padding, false));
    }
  check_op(sampled(random_f32({1, 16, 33, 65}, 1), random_of(DType::f32, {1, 64, 96, 2}, 2, -1, 1), "linear", "zeros",
                   false));  // several pieces
}

TEST_CASE("grid_sample/corners_and_ties") {
  // Onto the centres of the elements themselves, halfway between them and onto the borders.
  std::vector<float> points;
  for (int i = -2; i <= 10; ++i)
    for (int j = -2; j <= 10; ++j)
      points.insert(points.end(), {static_cast<float>(i - 4) / 4, static_cast<float>(j - 4) / 4});
  const Tensor grid = Tensor::of<float>({1, 13, 13, 2}, points), x = random_f32({1, 2, 4, 4}, 1);
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool align : {false, true}) check_op(sampled(x, grid, mode, padding, align));
}

TEST_CASE("grid_sample/no_numbers") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const Tensor x = random_f32({1, 1, 3, 3}, 1);
  const Tensor grid = Tensor::of<float>({1, 1, 5, 2}, {nan, 0, 0, nan, infinity, 0, 0, -infinity, 1e30F, -1e30F});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const Tensor zeros = run_op(sampled(x, grid, mode, "zeros", false))[0];
    const Tensor border = run_op(sampled(x, grid, mode, "border", false))[0];
    const Tensor reflection = run_op(sampled(x, grid, mode, "reflection", false))[0];
    for (const std::size_t i : {0U, 1U})
      for (const Tensor* y : {&zeros, &border, &reflection}) CHECK(std::isnan(y->values<float>()[i]));
    for (const std::size_t i : {2U, 3U, 4U}) {
      CHECK(zeros.values<float>()[i] == 0);
      CHECK(std::isfinite(border.values<float>()[i]));
    }
    CHECK(border.values<float>()[4] == x.values<float>()[2]);
    CHECK(std::isnan(reflection.values<float>()[2]));
    CHECK(std::isfinite(reflection.values<float>()[4]));
  }
}

TEST_CASE("grid_sample/many_points") {
  // More than are found at a time, of lines that do not divide them; inside, and across the border.
  check_op(sampled(random_f32({2, 2, 9, 11}, 1), random_of(DType::f32, {2, 211, 313, 2}, 2, -1.1, 1.1), "linear",
                   "zeros", false));
}

TEST_CASE("grid_sample/volumes") {
  unsigned seed = 70;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* mode : {"nearest", "linear"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool align : {false, true}) {
        const auto check = [&](const Shape& x, const Shape& grid, double reach) {
          check_op(
              sampled(random_f32(x, seed), random_of(DType::f32, grid, seed + 1, -reach, reach), mode, padding, align));
          seed += 2;
        };
        check({2, 3, 4, 5, 7}, {2, 2, 3, 19, 3}, 1.4);
        check({1, 9, 3, 2, 5}, {1, 3, 2, 2, 3}, 9);
        check({1, 1, 1, 1, 1}, {1, 1, 3, 3, 3}, 1.2);
        check({1, 2, 1, 3, 6}, {1, 1, 1, 130, 3}, 1);
        check({0, 3, 4, 4, 4}, {0, 2, 2, 2, 3}, 1);
        const Tensor grid = Tensor::of<float>({1, 1, 1, 3, 3}, {nan, 0, 0, 0, nan, 0, 0, 9, nan});
        const Tensor y = run_op(sampled(random_f32({1, 1, 3, 3, 3}, 1), grid, mode, padding, align))[0];
        for (const float value : y.values<float>()) CHECK(std::isnan(value));
      }
  const auto error = [](const Shape& x, const Shape& grid, const char* mode) {
    return infer_error(sampled(Tensor(DType::f32, x), Tensor(DType::f32, grid), mode, "zeros", false));
  };
  CHECK(error({1, 1, 3, 3, 3}, {1, 1, 1, 3, 3}, "cubic") == ErrorKind::unsupported);
  CHECK(error({1, 1, 3, 3, 3}, {1, 1, 3, 3}, "linear") == ErrorKind::unsupported);
  CHECK(error({1, 1, 3, 3, 3}, {1, 1, 1, 3, 2}, "linear") == ErrorKind::invalid_model);
  CHECK(error({1, 1, 3, 3, 3, 3}, {1, 1, 1, 1, 3, 4}, "linear") == ErrorKind::unsupported);
}

TEST_CASE("grid_sample/before_opset_20") {
  const Tensor x = random_f32({1, 2, 5, 4}, 1), grid = random_of(DType::f32, {1, 3, 3, 2}, 2, -1, 1);
  for (const char* mode : {"bilinear", "bicubic"})
    check_op({.op = "GridSample",
              .opset = 16,
              .attributes = {{"mode", Text(mode)}},
              .inputs = {x, grid},
              .tolerance = blended});
  check_op({.op = "GridSample", .opset = 16, .inputs = {x, grid}, .tolerance = blended});
  check_op({.op = "GridSample", .opset = 22, .inputs = {x, grid}, .tolerance = blended});
}

TEST_CASE("grid_sample/refusals") {
  const Tensor x = random_f32({1, 2, 5, 4}, 1), grid = random_f32({1, 3, 3, 2}, 2);
  const auto kind = [](const Tensor& of_x, const Tensor& of_grid) {
    return infer_error({.op = "GridSample", .opset = 20, .inputs = {of_x, of_grid}});
  };
  CHECK(kind(x, random_f32({2, 3, 3, 2}, 1)) == ErrorKind::invalid_model);
  CHECK(kind(x, random_f32({1, 3, 3, 3}, 1)) == ErrorKind::invalid_model);
  CHECK(kind(random_f32({1, 2, 0, 4}, 1), grid) == ErrorKind::invalid_model);
  CHECK_ERROR(make_op(sampled(x, grid, "bilinear", "zeros", false)), unsupported, "attribute 'mode' is 'bilinear'");
  CHECK_ERROR(make_op(sampled(x, grid, "linear", "wrap", false)), unsupported, "attribute 'padding_mode' is 'wrap'");
}

TEST_CASE("affine_grid/sizes") {
  for (const bool align : {false, true}) {
    check_op(affine({2, 2, 3}, int64s({2, 3, 5, 6}), align));
    check_op(affine({2, 2, 3}, int64s({2, 1, 1, 70}), align));
    check_op(affine({3, 3, 4}, int64s({3, 2, 4, 5, 6}), align));
    check_op(affine({1, 3, 4}, int64s({1, 2, 1, 5, 1}), align));
    check_op(affine({0, 2, 3}, int64s({0, 3, 5, 6}), align));
    check_op(affine({1, 2, 3}, int64s({1, 1, 80, 90}), align));  // several pieces
  }
  CHECK(infer_op(affine({3, 3, 4}, int64s({3, 2, 4, 5, 6}), false))[0].shape == Shape{3, 4, 5, 6, 3});
  CHECK(infer_error(affine({2, 2, 3}, int64s({3, 3, 5, 6}), false)) == ErrorKind::invalid_model);
  CHECK(infer_error(affine({2, 2, 3}, int64s({2, 5, 6}), false)) == ErrorKind::invalid_model);
  CHECK(infer_error(affine({2, 2, 3}, int64s({2, 1, -5, 6}), false)) == ErrorKind::invalid_model);
  OpCase computed = affine({2, 2, 3}, int64s({2, 3, 5, 6}), false);
  computed.constant = {};
  CHECK(infer_error(computed) == ErrorKind::unsupported);
}

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
  // Inside, across each border, far beyond, of no size, turned round, larger than the image.
  const std::vector<float> corners{1.3F, 2.1F, 9.8F, 7.4F, -6.5F, -3, 4, 5, 9,   4,   30, 18,    50, 50, 60, 61,
                                   4,    4,    4,    4,    8,     7,  3, 2, -90, -80, 95, 80.5F, 0,  0,  12, 10};
  const Tensor x = random_f32({2, 3, 10, 12}, 1);
  for (const char* mode : {"avg", "max"})
    for (const char* from : {"half_pixel", "output_half_pixel"})
      for (const std::int64_t samples : {0, 1, 3})
        for (const double scale : {1.0, 0.25}) {
          const AttributeList attributes{{"mode", Text(mode)},
                                         {"coordinate_transformation_mode", Text(from)},
                                         {"sampling_ratio", samples},
                                         {"spatial_scale", scale},
                                         {"output_height", std::int64_t{3}},
                                         {"output_width", std::int64_t{2}}};
          check_op(boxes(x, corners, attributes));
        }
  check_op(
      boxes(random_f32({1, 40, 7, 5}, 2), {0.5F, 0.5F, 4.25F, 6, 1, 2, 3, 3}, {{"output_width", std::int64_t{5}}}));
  check_op(boxes(random_f32({1, 1, 1, 1}, 2), {0, 0, 1, 1}, {{"output_width", std::int64_t{2}}}));
  check_op(boxes(random_f32({1, 2, 4, 4}, 2), {}, {}));
  check_op(boxes(x, corners, {{"spatial_scale", 0.5}}, 10));  // no half pixel yet
  for (const std::int64_t samples : {3, 17})  // a line's samples, and those of one bin, are more than are kept
    check_op(boxes(x, corners, {{"sampling_ratio", samples}, {"output_width", std::int64_t{40}}}));
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
    CHECK(std::isfinite(y.values<float>()[3]));  // and takes no longer than the image is large
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

TEST_CASE("roi_align/refusals") {
  const Tensor x = random_f32({1, 2, 5, 4}, 1);
  OpCase c = boxes(x, {0, 0, 1, 1}, {});
  c.inputs[1] = random_f32({1, 5}, 1);
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c = boxes(x, {0, 0, 1, 1}, {});
  c.inputs[2] = int64s({0, 0});
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  CHECK(infer_error(boxes(random_f32({1, 2, 0, 4}, 1), {0, 0, 1, 1}, {})) == ErrorKind::invalid_model);
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"mode", Text("median")}})), unsupported, "attribute 'mode' is 'median'");
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"output_width", std::int64_t{0}}})), invalid_model,
              "attribute 'output_width' is 0");
  CHECK_ERROR(make_op(boxes(x, {0, 0, 1, 1}, {{"sampling_ratio", std::int64_t{-1}}})), invalid_model,
              "attribute 'sampling_ratio' is -1");
}

namespace {

OpCase suppression(std::int64_t images, std::int64_t classes, std::int64_t count, std::int64_t most, bool centre) {
  Tensor boxes(DType::f32, {images, count, 4});
  const Tensor drawn = random_of(DType::f32, boxes.shape(), 1, 0.05, 1);
  for (std::size_t i = 0; i < drawn.values<float>().size(); ++i) boxes.values<float>()[i] = drawn.values<float>()[i];
  return {.op = "NonMaxSuppression",
          .attributes = {{"center_point_box", std::int64_t{centre}}},
          .inputs = {boxes, random_f32({images, classes, count}, 2), int64s({most}),
                     Tensor::of<float>(Shape{1}, {0.4F}), Tensor::of<float>(Shape{1}, {-0.5F})},
          .constant = {0, 1, 2, 3, 4}};
}

}  // namespace

TEST_CASE("non_max_suppression/every_way") {
  for (const bool centre : {false, true})
    for (const std::int64_t most : {0, 1, 7, 1000}) {
      check_op(suppression(1, 1, 50, most, centre));
      check_op(suppression(2, 3, 41, most, centre));
      check_op(suppression(2, 3, 0, most, centre));
    }
  OpCase c = suppression(2, 2, 30, 5, false);
  c.inputs.resize(4), c.constant.resize(4);
  check_op(c);
  c.inputs[3] = Tensor();
  check_op(c);
  c.inputs.resize(2), c.constant.resize(2);
  check_op(c);
}

// Of equal scores the first; a box that only touches the threshold stays; a score that is no number is none.
TEST_CASE("non_max_suppression/ties") {
  OpCase c = suppression(1, 1, 3, 3, false);
  c.inputs[0] = Tensor::of<float>(Shape{1, 3, 4}, {0, 0, 1, 1, 1, 0.5F, 0, 0, 0, 0, 1, 1});
  c.inputs[1] = Tensor::of<float>(Shape{1, 1, 3}, {2, 2, 2});
  c.inputs[3] = Tensor::of<float>(Shape{1}, {0.5F});
  CHECK(run_op(c)[0].shape() == Shape{2, 3});
  CHECK(run_op(c)[0].values<std::int64_t>()[5] == 1);
  c.inputs[1] = Tensor::of<float>(Shape{1, 1, 3}, {2, std::numeric_limits<float>::quiet_NaN(), 2});
  CHECK(run_op(c)[0].shape() == Shape{1, 3});
  c.inputs.resize(4), c.constant.resize(4);
  CHECK(run_op(c)[0].shape() == Shape{1, 3});
}

TEST_CASE("non_max_suppression/refusals") {
  OpCase c = suppression(1, 1, 3, 3, false);
  c.inputs[3] = Tensor::of<float>(Shape{1}, {1.5F});
  CHECK(infer_error(c) == ErrorKind::invalid_argument);
  c = suppression(1, 1, 3, 3, false);
  c.inputs[1] = random_f32({1, 1, 4}, 1);
  CHECK(infer_error(c) == ErrorKind::invalid_model);
  c = suppression(1, 1, 3, 3, false);
  c.constant = {0, 2, 3, 4};
  CHECK(infer_error(c) == ErrorKind::unsupported);
}

}  // namespace lenslet::test
