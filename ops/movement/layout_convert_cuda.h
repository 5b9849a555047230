#pragma once
// NCHW to NHWC and back on the device.

#include <cstddef>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// Converts a tensor of `shape` [N,C,H,W] (elements of 1, 2, 4 or 8 bytes) from one of the two formats to the other.
/// Device addresses that do not overlap.
void convert_layout(const Context& context, std::size_t element_bytes, const Shape& shape, const Format& from_format,
                    const Format& to_format, const void* from, void* to);

}  // namespace lenslet::cuda
