#pragma once
// Weighted sums of 8-bit codes as codes: what pools and Resize compute of channels that lie side by side.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// A pixel that contributes, by its distance in bytes.
struct BlendTap {
  std::int64_t offset = 0;
  float weight = 1;
};

/// A sum as the code of its number, of `type`: (sum - zero) * factor + zero_point, rounded to nearest even, within
/// [least, most].
struct BlendedCodes {
  float zero = 0, factor = 0;
  std::int32_t zero_point = 0, least = 0, most = 255;
  DType type = DType::u8;

  /// Its bits.
  std::uint8_t code(float sum) const {
    const float step = (sum - zero) * factor;
    const auto low = static_cast<float>(least - zero_point), high = static_cast<float>(most - zero_point);
    // A float between 2^23 and 2^24 has units of one; the bounds are whole.
    const float rounded = ((step > low ? step < high ? step : high : low) + 0x1.8p23F) - 0x1.8p23F;
    return static_cast<std::uint8_t>(static_cast<std::int32_t>(rounded) + zero_point);
  }
};

/// y[c] = the code of the sum of weight * x[offset + c], c < channels, in float32 and in the taps' order, rounded at
/// each step; x has codes of `type`, uint8 or int8, and does not overlap y.
void blend_codes(DType type, const void* x, const BlendTap* taps, std::int64_t count, std::int64_t channels,
                 const BlendedCodes& codes, std::uint8_t* y);

}  // namespace lenslet
