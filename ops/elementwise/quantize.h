#pragma once
// The functions of QuantizeLinear and DequantizeLinear, on the host and on the device.

#include <cmath>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"
#include "base/saturate.h"

namespace lenslet {

using QuantizedTypes = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;
using DequantizedTypes = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t>;

/// round(x / scale) + zero_point, halves to the even neighbour, beyond T's range its nearest end.
template <typename T>
struct Quantize {
  LENSLET_HOST_DEVICE T operator()(float x, float scale, T zero_point) const {
    return saturate<T>(static_cast<double>(std::rint(x / scale)) + zero_point);
  }
  LENSLET_HOST_DEVICE T operator()(float x, float scale) const { return (*this)(x, scale, T{0}); }
};

/// (x - zero_point) * scale.
template <typename T>
struct Dequantize {
  LENSLET_HOST_DEVICE float operator()(T x, float scale, T zero_point) const {
    return static_cast<float>(static_cast<std::int64_t>(x) - static_cast<std::int64_t>(zero_point)) * scale;
  }
  LENSLET_HOST_DEVICE float operator()(T x, float scale) const { return static_cast<float>(x) * scale; }
};

}  // namespace lenslet
