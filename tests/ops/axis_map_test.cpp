// Axis maps by themselves; op_meaning.h compares those of the operators with computed results.

#include "ops/core/axis_map.h"

#include <doctest/doctest.h>

#include <vector>

#include "ops/core/op.h"

using namespace lenslet;

namespace {

constexpr int none = AxisMap::none;

/// The followed input axis of each axis of an output of `rank`.
std::vector<int> followed(const AxisMap& map, std::size_t input, int rank) {
  const auto& axes = map.inputs.at(input).axis;
  return {axes.begin(), axes.begin() + rank};
}

/// Whether one position of the input is read by all positions of the output's axis.
std::vector<bool> stretched(const AxisMap& map, std::size_t input, int rank) {
  const auto& axes = map.inputs.at(input).stretched;
  return std::vector<bool>(axes.begin(), axes.begin() + rank);
}

InputInfo info(Shape shape) { return {.present = true, .type = {DType::f32, shape}}; }

}  // namespace

TEST_CASE("axis_map/elementwise_inputs_broadcast") {
  const Shape output{2, 3, 4, 5};
  const std::vector<InputInfo> inputs{info({2, 3, 4, 5}), info({3, 1, 5}), info({}), InputInfo(), info({2, 3, 4, 5})};
  const AxisMap map = elementwise_axes(inputs, output, 4);
  REQUIRE(map.inputs.size() == 5);
  CHECK_FALSE(map.keeps_order);
  CHECK(followed(map, 0, 4) == std::vector<int>{0, 1, 2, 3});
  CHECK(followed(map, 1, 4) == std::vector<int>{none, 0, none, 2});
  CHECK(followed(map, 2, 4) == std::vector<int>{none, none, none, none});
  for (const std::size_t input : {0U, 1U, 2U}) CHECK_FALSE(map.inputs[input].parameter);
  for (const std::size_t input : {3U, 4U}) CHECK(map.inputs[input].parameter);
  CHECK(stretched(map, 0, 4) == std::vector<bool>{false, false, false, false});
  CHECK(stretched(map, 1, 4) == std::vector<bool>{true, false, true, false});
  CHECK(stretched(map, 2, 4) == std::vector<bool>{true, true, true, true});
  CHECK(map.inputs[1].follower(2) == 3);
  CHECK(map.inputs[1].follower(1) == none);
}

TEST_CASE("axis_map/axes_that_are_kept") {
  const AxisMap map = axes_kept(3, {0, 2});
  REQUIRE(map.inputs.size() == 3);
  CHECK_FALSE(map.inputs[0].parameter);
  CHECK(map.inputs[1].parameter);
  CHECK(followed(map, 0, 4) == std::vector<int>{0, none, 2, none});
  CHECK(stretched(map, 0, 4) == std::vector<bool>{false, false, false, false});
  const AxisMap others = axes_kept_if(1, 4, [](int axis) { return axis != 1; });
  CHECK(followed(others, 0, 5) == std::vector<int>{0, none, 2, 3, none});
}

// A product's rows are read by all columns and its columns by all rows, but only batches can be broadcast.
TEST_CASE("axis_map/products_are_not_elementwise") {
  const auto matmul = make_op("MatMul", "", {}, 2);
  CHECK(matmul->elementwise_inputs() == 0);
  const std::vector<InputInfo> batches{info({5, 1, 4, 6}), info({3, 6, 7})};
  const AxisMap of_batches = matmul->axis_map(batches, {5, 3, 4, 7}).value();
  CHECK(followed(of_batches, 0, 4) == std::vector<int>{0, none, 2, none});
  CHECK(stretched(of_batches, 0, 4) == std::vector<bool>{false, true, false, true});
  CHECK(followed(of_batches, 1, 4) == std::vector<int>{none, 0, none, 2});
  CHECK(stretched(of_batches, 1, 4) == std::vector<bool>{true, false, true, false});
  const std::vector<InputInfo> one_row{info({1, 6}), info({6, 7})};
  CHECK(stretched(matmul->axis_map(one_row, {1, 7}).value(), 0, 2) == std::vector<bool>{false, true});

  const auto einsum = make_op("Einsum", "", {{"equation", std::string("bhwc,cd->bhwd")}}, 2);
  CHECK(einsum->elementwise_inputs() == 0);
  const std::vector<InputInfo> images{info({2, 4, 5, 6}), info({6, 3})};
  const AxisMap of_images = einsum->axis_map(images, {2, 4, 5, 3}).value();
  CHECK(followed(of_images, 0, 4) == std::vector<int>{0, 1, 2, none});
  CHECK(stretched(of_images, 0, 4) == std::vector<bool>{false, false, false, true});
  CHECK(followed(of_images, 1, 4) == std::vector<int>{none, none, none, 1});
  CHECK(stretched(of_images, 1, 4) == std::vector<bool>{true, true, true, false});
  // Neither can be moved to other axes like an elementwise operator.
  const int moved[] = {0, 2, 3, 1};
  CHECK_FALSE(einsum->permuted(moved, images));
  CHECK_FALSE(matmul->permuted(moved, images));  // the matrix is not constant
}
