#pragma once
// Padding on the device.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/movement/pad_axis.h"

namespace lenslet::cuda {

struct Context;

/// Pads or crops by `axes`, one per dimension in memory order, outermost first. Elements of 1, 2, 4 or 8 bytes, the
/// constant in the low bytes of `value`. Device addresses that do not overlap.
void pad(const Context& context, std::size_t element_bytes, PadMode mode, std::span<const PadAxis> axes,
         std::uint64_t value, const void* from, void* to);

}  // namespace lenslet::cuda
