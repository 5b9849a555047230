// GridSample.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "lenslet/host.h"
#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

using Text = std::string;

/// Weights are rounded, and a sum rounds once a tap; the kernels' own tolerance is larger.
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
  // On the centres of elements, halfway between them and on the borders.
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
  // More points than are computed at a time, in lines that do not divide them; inside, and across the border.
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

// Points are computed first, into workspace, if 32 bits can index an image's floats.
TEST_CASE("grid_sample/points_are_kept_of_images_of_fewer_than_2_to_the_31_floats") {
  const auto workspace = [](std::int64_t side) {
    const InputInfo infos[] = {{true, {DType::f32, {1, 1, side, side}}, nullptr},
                               {true, {DType::f32, {1, 2, 3, 2}}, nullptr}};
    const Problem problem(make_normalised_op("GridSample", {{"mode", Text("linear")}}, 2), infos);
    const Kernel& kernel = *kernels_of("GridSample", DeviceKind::cpu)[0];
    return kernel.offer(problem, {.device = cpu_profile(1)}).candidates.at(0).workspace_bytes;
  };
  CHECK(workspace(46300) > 0);  // 2^31 is 46341 squared
  CHECK(workspace(46400) == 0);
}

TEST_CASE("grid_sample/other_batches_ranks_and_modes_are_refused") {
  const Tensor x = random_f32({1, 2, 5, 4}, 1), grid = random_f32({1, 3, 3, 2}, 2);
  const auto kind = [](const Tensor& of_x, const Tensor& of_grid) {
    return infer_error({.op = "GridSample", .opset = 20, .inputs = {of_x, of_grid}});
  };
  CHECK(kind(x, random_f32({2, 3, 3, 2}, 1)) == ErrorKind::invalid_model);
  CHECK(kind(x, random_f32({1, 3, 3, 3}, 1)) == ErrorKind::invalid_model);
  CHECK(kind(random_f32({1, 2, 0, 4}, 1), grid) == ErrorKind::invalid_model);
  CHECK(kind(random_f32({1, 1, 0, 4}, 1), random_f32({1, 1, 1, 2}, 1)) == ErrorKind::invalid_model);  // a single result
  CHECK_ERROR(make_op(sampled(x, grid, "bilinear", "zeros", false)), unsupported, "attribute 'mode' is 'bilinear'");
  CHECK_ERROR(make_op(sampled(x, grid, "linear", "wrap", false)), unsupported, "attribute 'padding_mode' is 'wrap'");
}

}  // namespace lenslet::test
