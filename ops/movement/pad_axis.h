#pragma once
// Sources of the elements of a padded axis.

#include <algorithm>
#include <cstdint>

#include "base/cuda/host_device.h"

namespace lenslet {

enum class PadMode { constant, reflect, edge, wrap };

/// Source of position `o` of a padded axis; -1: the constant. `Axis` gives the kept input elements, from `first` on,
/// and the number of positions `before` them. Int: large enough for 2 * kept.
template <typename Int, typename Axis>
LENSLET_HOST_DEVICE std::int64_t pad_source(const Axis& axis, PadMode mode, Int o) {
  Int i = o - axis.before;
  if (i >= 0 && i < axis.kept) return axis.first + i;
  switch (mode) {
    case PadMode::constant:
      return -1;
    case PadMode::edge:
      return axis.first + (i < 0 ? 0 : axis.kept - 1);
    case PadMode::wrap:
      i %= axis.kept;
      return axis.first + (i < 0 ? i + axis.kept : i);
    case PadMode::reflect:
      break;
  }
  // Mirrored at the first and last element: period 2 (kept - 1).
  if (axis.kept == 1) return axis.first;
  const Int period = 2 * (axis.kept - 1);
  i %= period;
  if (i < 0) i += period;
  return axis.first + (i < period - i ? i : period - i);
}

/// One axis: what is left of the input after cropping, and the padding around it.
struct PadAxis {
  std::int64_t dim = 1;              ///< elements of the input
  std::int64_t out = 1;              ///< elements of the output
  std::int64_t first = 0, kept = 1;  ///< the part of the input that stays
  std::int64_t before = 0;           ///< where it begins in the output

  /// An axis of `d` elements with pads (negative: cropped), which shape inference has checked.
  static PadAxis of(std::int64_t d, std::int64_t pad_before, std::int64_t pad_after) {
    PadAxis axis;
    axis.dim = d;
    axis.first = std::max<std::int64_t>(-pad_before, 0);
    axis.kept = d - axis.first - std::max<std::int64_t>(-pad_after, 0);
    axis.before = std::max<std::int64_t>(pad_before, 0);
    axis.out = axis.before + axis.kept + std::max<std::int64_t>(pad_after, 0);
    return axis;
  }
  bool unchanged() const { return out == dim && first == 0 && before == 0 && kept == dim; }

  /// Source of output index `o`; -1: the constant.
  std::int64_t source(std::int64_t o, PadMode mode) const { return pad_source(*this, mode, o); }
};

}  // namespace lenslet
