// AffineGrid.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

namespace lenslet::test {
namespace {

OpCase affine(Shape theta, const Tensor& size, bool align_corners) {
  return {.op = "AffineGrid",
          .opset = 20,
          .attributes = {{"align_corners", std::int64_t{align_corners}}},
          .inputs = {random_f32(theta, 5), size},
          .constant = {1},
          .tolerance = 0x1p-22};
}

}  // namespace

TEST_CASE("affine_grid/grids_of_images_and_volumes_are_the_oracles") {
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

}  // namespace lenslet::test
