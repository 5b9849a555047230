#pragma once
// The 16-bit floating-point formats as bit patterns: IEEE 754 binary16 (f16) and bfloat16 (bf16). Conversions round to
// nearest even; overflow gives infinity; a NaN keeps its sign and becomes quiet.

#include <bit>
#include <cstdint>

#include "base/cuda/host_device.h"

namespace lenslet {

/// An element of such a tensor.
struct Float16 {
  std::uint16_t bits = 0;
};
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// Exact.
constexpr float f32_from_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1FU) {
    const std::uint32_t quiet = mantissa != 0 ? 0x00400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24, which float represents exactly.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr std::uint16_t f16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  } else if (magnitude >= 0x477FF000U) {  // 65520, halfway between the largest half and 2^16
    half = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14: normal
    const std::uint32_t even = (magnitude >> 13) & 1U;
    half = (magnitude - 0x38000000U + 0xFFFU + even) >> 13;
  } else if (magnitude >= 0x33000000U) {  // 2^-25: at least half of the smallest subnormal
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t shift = 126U - exponent;  // 14..24: units of 2^-24
    const std::uint32_t even = (mantissa >> shift) & 1U;
    half = (mantissa + (1U << (shift - 1U)) - 1U + even) >> shift;
  }
  return static_cast<std::uint16_t>(sign | half);
}

/// Exact.
constexpr float f32_from_bf16(std::uint16_t brain) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(brain) << 16;
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return std::bit_cast<float>(nan ? bits | 0x00400000U : bits);
}

constexpr std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);
  const std::uint32_t even = (bits >> 16) & 1U;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + even) >> 16);
}

/// Rounds to odd: towards zero, with the last bit set when inexact. Rounding the result to a format with at least two
/// fewer mantissa bits equals rounding `value` directly.
LENSLET_HOST_DEVICE constexpr float f32_round_to_odd(double value) noexcept {
  // Clamped: converting a double beyond float's range is undefined in a constant expression.
  constexpr float most = 0x1.FFFFFEp127F;
  const double magnitude = value < 0 ? -value : value;
  if (magnitude > static_cast<double>(most) && magnitude <= 0x1.FFFFFFFFFFFFFp1023) return value < 0 ? -most : most;
  const auto nearest = static_cast<float>(value);
  const double back = static_cast<double>(nearest);
  if (!(back < value) && !(back > value)) return nearest;  // exact, or NaN
  auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  if ((back < 0 ? -back : back) > magnitude) --bits;
  if (nearest == 0.0F && value < 0) bits |= 0x80000000U;
  return __builtin_bit_cast(float, bits | 1U);
}

constexpr std::uint16_t f16_from_f64(double value) noexcept { return f16_from_f32(f32_round_to_odd(value)); }
constexpr std::uint16_t bf16_from_f64(double value) noexcept { return bf16_from_f32(f32_round_to_odd(value)); }

}  // namespace lenslet
