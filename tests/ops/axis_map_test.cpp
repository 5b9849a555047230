// Axis maps by themselves; those of the operators are held against what they compute (op_meaning.h).

#include "ops/core/axis_map.h"

#include <doctest/doctest.h>

#include <vector>

#include "ops/core/op.h"

using namespace lenslet;

namespace {

constexpr int none = AxisMap::none;

/// The axes that are followed, by axis of an output of `rank`.
std::vector<int> followed(const AxisMap& map, std::size_t input, int rank) {
  const auto& axes = map.inputs.at(input).axis;
  return {axes.begin(), axes.begin() + rank};
}

}  // namespace

TEST_CASE("axis_map/elementwise_inputs_broadcast") {
  const Shape output{2, 3, 4, 5};
  const auto info = [](Shape shape) { return InputInfo{.present = true, .type = {DType::f32, shape}}; };
  const std::vector<InputInfo> inputs{info({2, 3, 4, 5}), info({3, 1, 5}), info({}), InputInfo(), info({2, 3, 4, 5})};
  const AxisMap map = elementwise_axes(inputs, output, 4);
  REQUIRE(map.inputs.size() == 5);
  CHECK(map.broadcasts);
  CHECK_FALSE(map.keeps_order);
  CHECK(followed(map, 0, 4) == std::vector<int>{0, 1, 2, 3});
  CHECK(followed(map, 1, 4) == std::vector<int>{none, 0, none, 2});
  CHECK(followed(map, 2, 4) == std::vector<int>{none, none, none, none});
  for (const std::size_t input : {0U, 1U, 2U}) CHECK_FALSE(map.inputs[input].parameter);
  for (const std::size_t input : {3U, 4U}) CHECK(map.inputs[input].parameter);
  CHECK(map.inputs[1].follower(2) == 3);
  CHECK(map.inputs[1].follower(1) == none);
}

TEST_CASE("axis_map/axes_that_are_kept") {
  const AxisMap map = axes_kept(3, {0, 2});
  REQUIRE(map.inputs.size() == 3);
  CHECK_FALSE(map.inputs[0].parameter);
  CHECK(map.inputs[1].parameter);
  CHECK(followed(map, 0, 4) == std::vector<int>{0, none, 2, none});
  CHECK_FALSE(map.broadcasts);
  const AxisMap others = axes_kept_if(1, 4, [](int axis) { return axis != 1; });
  CHECK(followed(others, 0, 5) == std::vector<int>{0, none, 2, 3, none});
}
