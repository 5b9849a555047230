#pragma once
// Conversions between element types, on host and device.

#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/half.h"
#include "base/saturate.h"
#include "base/small_types.h"
#include "lenslet/tensor.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace lenslet {

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Uses the device's instructions, which do not keep a NaN's payload.

LENSLET_HOST_DEVICE inline float widened(Float16 value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  return f32_from_f16(value.bits);
#endif
}
LENSLET_HOST_DEVICE inline float widened(BFloat16 value) {
#if defined(__CUDA_ARCH__)
  return __bfloat162float(__ushort_as_bfloat16(value.bits));
#else
  return f32_from_bf16(value.bits);
#endif
}

/// A float or double as To = f16 or bf16: nearest even, overflow to infinity.
template <typename To, typename From>
LENSLET_HOST_DEVICE To narrowed(From value) {
  constexpr bool ieee = std::is_same_v<To, Float16>, single = std::is_same_v<From, float>;
#if defined(__CUDA_ARCH__)
  if constexpr (ieee && single) return {__half_as_ushort(__float2half_rn(value))};
  if constexpr (ieee && !single) return {__half_as_ushort(__double2half(value))};
  if constexpr (!ieee && single) return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  if constexpr (!ieee && !single) return {__bfloat16_as_ushort(__double2bfloat16(value))};
#else
  if constexpr (ieee && single) return {f16_from_f32(value)};
  if constexpr (ieee && !single) return {f16_from_f64(value)};
  if constexpr (!ieee && single) return {bf16_from_f32(value)};
  if constexpr (!ieee && !single) return {bf16_from_f64(value)};
#endif
}

/// As Cast converts:
///   float -> integer: towards zero; beyond the integer's range the nearest end, NaN gives 0 (ONNX leaves both open)
///   integer -> smaller integer: the low bits
///   anything -> bool: 0 is false, all else (NaN too) true
///   -> f16, bf16: to nearest even, overflow to infinity
template <typename To, typename From>
LENSLET_HOST_DEVICE To convert(From value) {
  if constexpr (is_half<From>)
    return convert<To>(widened(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From{0};
  else if constexpr (is_half<To> && std::is_floating_point_v<From>)
    return narrowed<To>(value);
  else if constexpr (is_half<To>)
    return narrowed<To>(static_cast<double>(value));
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
    return saturate<To>(static_cast<double>(value));
  else
    return static_cast<To>(value);
}

/// The storage type of an element: a bool is a byte, and any nonzero byte is true.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

/// Cast of a single element.
template <typename To, typename From>
struct Convert {
  LENSLET_HOST_DEVICE Stored<To> operator()(Stored<From> value) const {
    if constexpr (std::is_same_v<From, bool>)
      return convert<To>(value != 0);
    else
      return convert<To>(value);
  }
};

/// A wide type that holds every value of From, for conversion to a small one: float, double or a 64-bit integer.
template <typename From>
using Wide = std::conditional_t<
    is_half<From>, float,
    std::conditional_t<std::is_floating_point_v<From> || std::is_same_v<From, std::uint64_t>, From, std::int64_t>>;

/// Converts a Wide to a small type; to small integers towards zero, low bits kept.
template <typename From>
LENSLET_HOST_DEVICE std::uint8_t convert_small(const SmallType& to, From value, SmallRounding rounding) {
  if (to.integer_bits != 0) return small_integer(to, convert<std::int64_t>(value));
  if constexpr (std::is_same_v<From, float>) return small_element(to, value, rounding);
  const auto wide = static_cast<double>(value);
  const bool beyond = wide >= 0x1p128 || wide <= -0x1p128;  // infinite to all of these types
  return small_element(to, beyond ? float_of_bits(wide < 0 ? 0xFF800000U : 0x7F800000U) : f32_round_to_odd(wide),
                       rounding);
}

/// y[i] = x[i] converted, for i < count, between any two types; `rounding` applies to 8-bit floats. y may be x if its
/// elements are not larger.
void convert_elements(DType from, const void* x, DType to, void* y, std::int64_t count, SmallRounding rounding = {});

}  // namespace lenslet
