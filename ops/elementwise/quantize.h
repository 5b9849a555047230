#pragma once
// The functions of QuantizeLinear and DequantizeLinear, for host and device.

#include <cmath>
#include <cstdint>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"
#include "base/saturate.h"
#include "base/small_types.h"

namespace lenslet {

using QuantizedTypes = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;
using DequantizedTypes = Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t>;

/// round(x / scale) + zero_point, ties to even, saturated to T.
template <typename T>
struct Quantize {
  LENSLET_HOST_DEVICE T operator()(float x, float scale, T zero_point) const {
    return saturate<T>(static_cast<double>(std::rint(x / scale)) + zero_point);
  }
  LENSLET_HOST_DEVICE T operator()(float x, float scale) const { return (*this)(x, scale, T{0}); }
};

/// The same for integers of 4 and 2 bits, stored as T.
template <typename T>
struct QuantizeNarrow {
  int least, most;
  LENSLET_HOST_DEVICE T operator()(float x, float scale, T zero_point) const {
    const int wide = saturate<std::int16_t>(static_cast<double>(std::rint(x / scale)) + zero_point);
    return static_cast<T>(wide < least ? least : wide > most ? most : wide);
  }
  LENSLET_HOST_DEVICE T operator()(float x, float scale) const { return (*this)(x, scale, T{0}); }
};

/// To floats of 8 and 4 bits: x / scale + zero_point, rounded as in Cast.
struct QuantizeSmall {
  SmallType type;
  SmallRounding rounding;
  LENSLET_HOST_DEVICE std::uint8_t operator()(float x, float scale, std::uint8_t zero_point) const {
    return small_element(type, x / scale + small_value(type, zero_point), rounding);
  }
  LENSLET_HOST_DEVICE std::uint8_t operator()(float x, float scale) const {
    return small_element(type, x / scale, rounding);
  }
};

/// (x - zero_point) * scale.
template <typename T>
struct Dequantize {
  LENSLET_HOST_DEVICE float operator()(T x, float scale, T zero_point) const {
    return static_cast<float>(static_cast<std::int64_t>(x) - static_cast<std::int64_t>(zero_point)) * scale;
  }
  LENSLET_HOST_DEVICE float operator()(T x, float scale) const { return static_cast<float>(x) * scale; }
};

/// The same for floats of 8 and 4 bits.
struct DequantizeSmall {
  SmallType type;
  LENSLET_HOST_DEVICE float operator()(std::uint8_t x, float scale, std::uint8_t zero_point) const {
    return (small_value(type, x) - small_value(type, zero_point)) * scale;
  }
  LENSLET_HOST_DEVICE float operator()(std::uint8_t x, float scale) const { return small_value(type, x) * scale; }
};

/// Calls f(function, T()) with the function that quantises to `to`, stored as T: one of QuantizedTypes, or of
/// base/small_types.h.
template <typename F>
void with_quantize(DType to, SmallRounding rounding, F&& f) {
  if (is_small_float(to)) return f(QuantizeSmall{*small_type(to), rounding}, std::uint8_t());
  if (const SmallType* small = small_type(to)) {
    const int most = static_cast<int>(small->most), least = small->sign != 0 ? -most - 1 : 0;
    if (small->sign != 0) return f(QuantizeNarrow<std::int8_t>{least, most}, std::int8_t());
    return f(QuantizeNarrow<std::uint8_t>{least, most}, std::uint8_t());
  }
  dispatch(to, QuantizedTypes(), [&]<typename T>(std::type_identity<T>) { f(Quantize<T>(), T()); });
}

/// The same for the function that dequantises `from`, one of DequantizedTypes or base/small_types.h.
template <typename F>
void with_dequantize(DType from, F&& f) {
  if (is_small_float(from)) return f(DequantizeSmall{*small_type(from)}, std::uint8_t());
  dispatch(stored_as(from), DequantizedTypes(), [&]<typename T>(std::type_identity<T>) { f(Dequantize<T>(), T()); });
}

}  // namespace lenslet
