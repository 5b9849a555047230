#include "ops/core/axis_map.h"

#include <algorithm>

#include "ops/core/op.h"

namespace lenslet {

std::int8_t AxisMap::Followed::follower(int input_axis) const {
  const auto found = std::find(axis.begin(), axis.end(), static_cast<std::int8_t>(input_axis));
  return found == axis.end() ? none : static_cast<std::int8_t>(found - axis.begin());
}

AxisMap elementwise_axes(std::span<const InputInfo> inputs, const Shape& output, std::size_t along) {
  AxisMap map;
  map.inputs.resize(inputs.size());
  for (std::size_t i = 0; i < std::min(inputs.size(), along); ++i) {
    if (!inputs[i].present) continue;
    const Shape& shape = inputs[i].type.shape;
    map.inputs[i].parameter = false;
    for (int to = 0; to < output.rank(); ++to) {
      const int axis = to - output.rank() + shape.rank();
      const auto at = static_cast<std::size_t>(to);
      map.inputs[i].stretched[at] = axis < 0 || shape[axis] == 1;
      if (axis >= 0 && shape[axis] == output[to]) map.inputs[i].axis[at] = static_cast<std::int8_t>(axis);
    }
  }
  return map;
}

AxisMap axes_kept(std::size_t inputs, std::initializer_list<int> axes) {
  AxisMap map;
  map.inputs.resize(inputs);
  map.inputs[0].parameter = false;
  for (const int axis : axes) map.inputs[0].axis[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(axis);
  return map;
}

}  // namespace lenslet
