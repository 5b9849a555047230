// NonMaxSuppression.

#include <doctest/doctest.h>

#include <limits>

#include "tests/ops/op_harness.h"

namespace lenslet::test {

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

// The first of equal scores wins; a box exactly at the threshold stays; a NaN score never counts.
TEST_CASE("non_max_suppression/of_equal_scores_the_first_stays") {
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

TEST_CASE("non_max_suppression/thresholds_beyond_1_and_computed_scores_are_refused") {
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
