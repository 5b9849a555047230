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

/// Output axis `a` follows axis `b` of an input when what lies at position p along `a` depends on position p along `b`
/// and on no other. Axes that an operator mixes, moves or makes are followed by none. Of one shape, all outputs alike.
struct AxisMap {
  static constexpr std::int8_t none = -1;

  /// Of one input.
  struct Followed {
    /// Weights, scales, bounds, axes: an input that is not laid out along the output.
    bool parameter = true;
    std::array<std::int8_t, Shape::max_rank> axis = filled();  ///< by axis of the output: an axis of the input, or none
    /// By axis of the output: every position along it reads the same of the input, which has size 1 there or no such
    /// axis, and so it would at any other size of the output.
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
  /// All outputs hold the elements of input 0 in their order (Reshape): whatever becomes of the axes, what is outermost
  /// before is outermost after.
  bool keeps_order = false;
};

/// Every output element from the input elements at its own place: the first `along` inputs broadcast to `output`, those
/// that follow are parameters (Op::elementwise_inputs).
AxisMap elementwise_axes(std::span<const InputInfo> inputs, const Shape& output, std::size_t along);

/// Input 0 is followed along `axes`, which keep their number; everything else is mixed or a parameter.
AxisMap axes_kept(std::size_t inputs, std::initializer_list<int> axes);
/// The same of all axes below `rank` for which kept(axis).
template <typename Kept>
AxisMap axes_kept_if(std::size_t inputs, int rank, const Kept& kept) {
  AxisMap map = axes_kept(inputs, {});
  for (int axis = 0; axis < rank; ++axis)
    if (kept(axis)) map.inputs[0].axis[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(axis);
  return map;
}

}  // namespace lenslet
