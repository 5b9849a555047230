#pragma once
// Formats with pixels aligned for TMA and for 16-byte vectors.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// The channel count rounded up to 16 bytes.
std::int64_t aligned_channels(std::int64_t channels, DType dtype);
/// nhwc with a pixel pitch that is a multiple of 16 bytes: "nhwc/104" for 100 halves, plain nhwc if none is needed.
/// Padding channels hold arbitrary values, also behind the last pixel: a store may overwrite them, and no result may
/// depend on them.
Format aligned_nhwc(std::int64_t channels, DType dtype);
/// True if the format may have a pixel pitch: nhwc without blocks and halo.
bool may_have_pitch(const Format& format);

}  // namespace lenslet
