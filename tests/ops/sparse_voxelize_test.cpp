// SparseVoxelize: random points compared with the oracle, cells by hand, and refusals.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

using Reals = std::vector<double>;

OpCase voxels(Tensor points, const Reals& size, const Reals& low, const Reals& high, const AttributeList& more = {}) {
  OpCase c{.op = "SparseVoxelize",
           .domain = "lenslet",
           .attributes = {{"voxel_size", size}, {"range_min", low}, {"range_max", high}},
           .inputs = {std::move(points)},
           .outputs = 2};
  c.attributes.insert(c.attributes.end(), more.begin(), more.end());
  return c;
}

/// Coordinates in [-1.2, 1.2), a tenth of them NaN or far away.
Tensor draw_points(const Shape& shape, unsigned seed) {
  Tensor points = random_f32(shape, seed);
  std::mt19937 random(seed);
  constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F};
  for (float& value : points.values<float>()) value *= 1.2F;
  const auto columns = static_cast<std::size_t>(shape[shape.rank() - 1]);
  for (std::size_t i = 0; i < points.values<float>().size() / columns; ++i)
    if (random() % 10 == 0) points.values<float>()[i * columns + random() % 3] = odd[random() % 3];
  return points;
}

}  // namespace

TEST_CASE("sparse/voxelize/drawn") {
  for (unsigned seed = 1; seed < 9; ++seed)
    for (const Shape& shape :
         {Shape{500, 4}, Shape{300, 3}, Shape{3, 200, 5}, Shape{1, 6}, Shape{0, 4}, Shape{2, 0, 4}}) {
      // Many points a cell, and few; a range that is not a multiple of the cell.
      check_op(voxels(draw_points(shape, seed), {0.5, 0.25, 1}, {-1, -1, -1}, {1, 1, 1}));
      check_op(voxels(draw_points(shape, seed), {0.03, 0.07, 0.11}, {-1, -0.5, -1}, {1, 1, 0.9}));
    }
}

TEST_CASE("sparse/voxelize/by_hand") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor points = Tensor::of<float>({6, 4}, {1.5F, 0.5F, 0.5F, 1,   //
                                                   0.5F, 0.5F, 0.5F, 2,   //
                                                   1.0F, 0.9F, 0.9F, 4,   // the cell of the first
                                                   2.0F, 0.5F, 0.5F, 8,   // range_max is outside
                                                   nan,  0.5F, 0.5F, 16,  //
                                                   0.5F, 0.5F, 1.5F, nan});
  const std::vector<Tensor> made =
      run_op(voxels(points, {1, 1, 1}, {0, 0, 0}, {2, 1, 2}, {{"max_sites", std::int64_t{4}}}));
  REQUIRE(made[0].shape() == Shape{4, 4});
  const auto indices = made[0].values<std::int32_t>();
  CHECK(std::vector<std::int32_t>(indices.begin(), indices.end()) ==
        std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, -1, -1, -1, -1});
  const auto features = made[1].values<float>();
  CHECK(std::vector<float>(features.begin(), features.begin() + 8) ==
        std::vector<float>{0.5F, 0.5F, 0.5F, 2, 1.25F, 0.7F, 0.7F, 2.5F});
  CHECK(std::isnan(features[11]));  // only where a point is
  CHECK(features[12] == 0);
}

TEST_CASE("sparse/voxelize/grids_that_make_no_sense_are_refused") {
  const Tensor points = random_f32({50, 4}, 1);
  const Reals one{1, 1, 1}, low{-1, -1, -1};
  const double nan = std::nan("");
  CHECK(refusal(voxels(points, one, low, {1, 1, 1})).empty());
  CHECK(refusal(voxels(points, {1, 1}, low, {1, 1, 1})).find("voxel_size has 2 entries") != std::string::npos);
  CHECK(!refusal(voxels(points, {1, 0, 1}, low, {1, 1, 1})).empty());
  CHECK(!refusal(voxels(points, {1, -1, 1}, low, {1, -3, 1})).empty());
  CHECK(!refusal(voxels(points, {1, nan, 1}, low, {1, 1, 1})).empty());
  CHECK(!refusal(voxels(points, one, low, {1, 1, -1})).empty());
  CHECK(!refusal(voxels(points, {1e-9, 1, 1}, low, {1e9, 1, 1})).empty());
  CHECK(!refusal(voxels(points, {1e-6, 1e-6, 1e-6}, low, {1, 1, 1})).empty());
  CHECK(!refusal(voxels(random_f32({50, 2}, 1), one, low, {1, 1, 1})).empty());
  CHECK(!refusal(voxels(random_f32({50}, 1), one, low, {1, 1, 1})).empty());
  CHECK(!refusal(voxels(points, one, low, {1, 1, 1}, {{"max_sites", std::int64_t{-1}}})).empty());
  CHECK_ERROR(run_op(voxels(points, one, low, {1, 1, 1}, {{"max_sites", std::int64_t{3}}})), invalid_argument,
              "more than the bound of 3 (max_sites)");
}

}  // namespace lenslet::test
