#pragma once
// Numbers from one type to another, on the host and on the device.

#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/half.h"
#include "base/saturate.h"
#include "lenslet/tensor.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace lenslet {

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The device has instructions for these; to them a NaN is a NaN, whatever its payload.

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

/// A float or double as To = f16 or bf16: to nearest even, overflow to infinity.
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
///   -> f16, bf16: to nearest even, overflow to infinity (`saturate` of opset 19 concerns 8-bit floats only)
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

/// How elements lie in memory: a bool as a byte, of which everything but 0 is true.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

/// The function of Cast.
template <typename To, typename From>
struct Convert {
  LENSLET_HOST_DEVICE Stored<To> operator()(Stored<From> value) const {
    if constexpr (std::is_same_v<From, bool>)
      return convert<To>(value != 0);
    else
      return convert<To>(value);
  }
};

/// y[i] = x[i] converted, for i < count; any two types. y may be x when an element of it is no larger.
void convert_elements(DType from, const void* x, DType to, void* y, std::int64_t count);

}  // namespace lenslet
