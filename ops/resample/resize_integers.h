#pragma once
// Linear Resize of 8-bit integers, bit-identical to ONNX Runtime: all axes at once, in float32, truncated; or of codes.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/core/blend_codes.h"
#include "ops/core/kernel.h"
#include "ops/resample/taps.h"

namespace lenslet {

/// [outer, axes..., inner] in memory order, from the first blended axis to the last.
struct IntegerResize {
  struct Axis {
    std::int64_t in = 1, out = 1;
    std::vector<LinearTap> taps;
  };
  std::int64_t outer = 1, inner = 1;
  std::vector<Axis> axes;  ///< none: nothing changes

  /// All sizes are positive.
  IntegerResize(const ResizeRule& rule, std::span<const ResizedAxis> axes, const Format& format);
};

/// `codes`: of codes; else its factor is 0.
std::unique_ptr<const BoundKernel> bind_resize_integers(IntegerResize resize, const BlendedCodes& codes,
                                                        const Binding& binding);
/// Its table is the blob written by fill_integer_taps().
std::unique_ptr<const BoundKernel> bind_resize_integers_cuda(const IntegerResize& resize, const Binding& binding);
std::size_t integer_taps_bytes(const IntegerResize& resize);
void fill_integer_taps(const IntegerResize& resize, std::span<std::byte> table);

}  // namespace lenslet
