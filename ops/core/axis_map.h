#pragma once
// Which axis of an operator's outputs follows which axis of an input.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet {

struct InputInfo;

/// Output axis `a` follows axis `b` of an input when the elements at position p along `a` depend only on position p
/// along `b`. Axes that an operator mixes, moves or creates follow none. All outputs have one shape and behave alike.
struct AxisMap {
  static constexpr std::int8_t none = -1;

  /// The axes of one input.
  struct Followed {
    /// Not laid out along the output: weights, scales, bounds, axes.
    bool parameter = true;
    std::array<std::int8_t, Shape::max_rank> axis = filled();  ///< by axis of the output: an axis of the input, or none
    /// Per output axis: all positions read the same input elements, because the input has size 1 there or lacks the
    /// axis. This holds for any size of the output.
    std::array<bool, Shape::max_rank> stretched{};

    /// The axis of the output that follows `input_axis`, or none.
    std::int8_t follower(int input_axis) const;

   private:
    static constexpr std::array<std::int8_t, Shape::max_rank> filled() {
      std::array<std::int8_t, Shape::max_rank> axes{};
      axes.fill(none);
      return axes;
    }
  };

  std::vector<Followed> inputs;
  /// All outputs hold the elements of input 0 in the same order (Reshape): the outermost axis stays outermost.
  bool keeps_order = false;
};

/// Each output element depends on the input elements at its own index: the first `along` inputs broadcast to `output`,
/// the others are parameters (Op::elementwise_inputs).
AxisMap elementwise_axes(std::span<const InputInfo> inputs, const Shape& output, std::size_t along);

/// Output axes `axes` follow the same axes of input 0; all other axes are mixed, all other inputs are parameters.
AxisMap axes_kept(std::size_t inputs, std::initializer_list<int> axes);
/// The same for all axes below `rank` with kept(axis).
template <typename Kept>
AxisMap axes_kept_if(std::size_t inputs, int rank, const Kept& kept) {
  AxisMap map = axes_kept(inputs, {});
  for (int axis = 0; axis < rank; ++axis)
    if (kept(axis)) map.inputs[0].axis[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(axis);
  return map;
}

}  // namespace lenslet
