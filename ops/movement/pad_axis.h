#pragma once
// Where the elements of a padded axis come from.

#include <algorithm>
#include <cstdint>

namespace lenslet {

enum class PadMode { constant, reflect, edge, wrap };

/// One axis: what remains of the input after cropping, and what the mode puts around it.
struct PadAxis {
  std::int64_t dim = 1;              ///< elements of the input
  std::int64_t out = 1;              ///< elements of the output
  std::int64_t first = 0, kept = 1;  ///< the part of the input that stays
  std::int64_t before = 0;           ///< where it begins in the output

  /// An axis of `d` elements with pads (negative: cut off), which were checked when shapes were inferred.
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

  /// Where output index `o` comes from; -1: the constant.
  std::int64_t source(std::int64_t o, PadMode mode) const {
    std::int64_t i = o - before;
    if (i >= 0 && i < kept) return first + i;
    switch (mode) {
      case PadMode::constant:
        return -1;
      case PadMode::edge:
        return first + (i < 0 ? 0 : kept - 1);
      case PadMode::wrap:
        i %= kept;
        return first + (i < 0 ? i + kept : i);
      case PadMode::reflect:
        break;
    }
    // A mirror at the first and at the last element: period 2 (kept - 1).
    if (kept == 1) return first;
    const std::int64_t period = 2 * (kept - 1);
    i %= period;
    if (i < 0) i += period;
    return first + std::min(i, period - i);
  }
};

}  // namespace lenslet
