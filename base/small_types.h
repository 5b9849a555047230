#pragma once
// Floats of 8 and 4 bits and integers of 4 and 2, stored in a byte each (tensor.h), on host and device. One table row
// per type drives reading and rounding. The formats are ONNX's: OFP8 (e4m3fn, e5m2), the fnuz forms of arXiv
// 2206.02915, and OCP microscaling (e8m0, e2m1).

#include <cstdint>

#include "base/cuda/host_device.h"
#include "base/half.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// Integers: bits and sign. Floats: sign, exponent, mantissa from the top; f8e8m0 has only an exponent.
struct SmallType {
  int integer_bits;  ///< 0: a float
  int mantissa_bits;
  int bias;           ///< of the exponent
  unsigned sign;      ///< its bit; 0: none
  unsigned most;      ///< the largest finite magnitude
  unsigned overflow;  ///< of larger numbers, unless saturated: infinity, NaN, or without either `most`
  unsigned nan;       ///< what NaN becomes: of f4e2m1, which has none, -0
  bool minus_zero;    ///< whether it has one; where not, its bits are NaN
};

inline constexpr SmallType small_types[] = {
    {0, 3, 7, 0x80, 0x7E, 0x7F, 0x7F, true},    // f8e4m3fn
    {0, 3, 8, 0x80, 0x7F, 0x80, 0x80, false},   // f8e4m3fnuz
    {0, 2, 15, 0x80, 0x7B, 0x7C, 0x7E, true},   // f8e5m2
    {0, 2, 16, 0x80, 0x7F, 0x80, 0x80, false},  // f8e5m2fnuz
    {0, 0, 127, 0, 0xFE, 0xFF, 0xFF, false},    // f8e8m0
    {0, 1, 1, 0x8, 0x7, 0x7, 0x8, true},        // f4e2m1
    {4, 0, 0, 0x8, 0x7, 0, 0, false},           // i4
    {4, 0, 0, 0, 0xF, 0, 0, false},             // u4
    {2, 0, 0, 0x2, 0x1, 0, 0, false},           // i2
    {2, 0, 0, 0, 0x3, 0, 0, false},             // u2
};

/// Null for types of AllTypes.
constexpr const SmallType* small_type(DType dtype) {
  return dtype < DType::f8e4m3fn ? nullptr : &small_types[static_cast<int>(dtype) - static_cast<int>(DType::f8e4m3fn)];
}
constexpr bool is_small_float(DType dtype) { return dtype >= DType::f8e4m3fn && dtype <= DType::f4e2m1; }
/// The storage type of an element: int8 for int4 and int2, uint8 for the other small types.
constexpr DType stored_as(DType dtype) {
  if (small_type(dtype) == nullptr) return dtype;
  return dtype == DType::i4 || dtype == DType::i2 ? DType::i8 : DType::u8;
}

/// Bits of an element in a file.
inline int dtype_bits(DType dtype) {
  const SmallType* const small = small_type(dtype);
  if (small != nullptr && small->integer_bits != 0) return small->integer_bits;
  return dtype == DType::f4e2m1 ? 4 : 8 * static_cast<int>(dtype_bytes(dtype));
}

/// Cast's attributes for numbers beyond an 8-bit float's range, by the same names.
struct SmallRounding {
  enum class Mode : std::uint8_t { up, down, nearest };
  bool saturate = true;
  Mode round_mode = Mode::up;  ///< to f8e8m0; of `nearest` ties go up
};

LENSLET_HOST_DEVICE inline float float_of_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// The value of a small float's element.
LENSLET_HOST_DEVICE inline float small_value(const SmallType& type, unsigned bits) {
  constexpr std::uint32_t nan = 0x7FC00000, infinity = 0x7F800000;
  if (type.sign == 0)
    return float_of_bits(bits == type.nan ? nan : bits == 0 ? std::uint32_t{1} << 22 : std::uint32_t{bits} << 23);
  const std::uint32_t magnitude = bits & (type.sign - 1), sign = (bits & type.sign) != 0 ? 0x80000000U : 0;
  if (magnitude > type.most)
    return float_of_bits(sign | (type.overflow != type.nan && magnitude == type.overflow ? infinity : nan));
  if (magnitude == 0 && sign != 0 && !type.minus_zero) return float_of_bits(nan);
  const int up = 23 - type.mantissa_bits;
  if (magnitude >> type.mantissa_bits != 0)
    return float_of_bits(sign | ((magnitude << up) + (static_cast<std::uint32_t>(127 - type.bias) << 23)));
  const float unit = float_of_bits(static_cast<std::uint32_t>(128 - type.bias - type.mantissa_bits) << 23);
  return sign != 0 ? -static_cast<float>(magnitude) * unit : static_cast<float>(magnitude) * unit;
}

/// Rounds a number to a small float, as in ONNX's Cast tables: to nearest even, or for f8e8m0, which has neither sign
/// nor 0, by round_mode.
LENSLET_HOST_DEVICE inline std::uint8_t small_element(const SmallType& type, float value, SmallRounding rounding) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU, sign = bits >> 31 != 0 ? type.sign : 0;
  if (magnitude > 0x7F800000U) return static_cast<std::uint8_t>(type.nan | sign);
  std::uint32_t result;
  if (type.sign == 0) {
    constexpr std::uint32_t least = 1U << 22;  // 2^-127, which float has as a subnormal
    if (magnitude < least) return static_cast<std::uint8_t>(rounding.saturate ? 0U : type.nan);
    const std::uint32_t fraction = magnitude < 1U << 23 ? (magnitude - least) << 1 : magnitude & 0x7FFFFFU;
    const std::uint32_t up_from = rounding.round_mode == SmallRounding::Mode::up ? 1U : 1U << 22;
    result = magnitude >> 23;
    if (rounding.round_mode != SmallRounding::Mode::down && fraction >= up_from) ++result;
  } else {
    // Rounds as f16_from_f32() does: a carry into the exponent needs no special case.
    const std::uint32_t normal_from = static_cast<std::uint32_t>(128 - type.bias) << 23;
    std::uint32_t from = magnitude - normal_from + (1U << 23);
    std::uint32_t shift = static_cast<std::uint32_t>(23 - type.mantissa_bits);
    if (magnitude < normal_from) {
      from = (magnitude & 0x7FFFFFU) | 0x800000U;
      shift += static_cast<std::uint32_t>(128 - type.bias) - (magnitude >> 23);
    }
    result = shift > 24 ? 0 : (from + (1U << (shift - 1)) - 1 + ((from >> shift) & 1U)) >> shift;
  }
  if (result > type.most) result = rounding.saturate ? type.most : type.overflow;
  if (result == 0 && !type.minus_zero) return 0;
  return static_cast<std::uint8_t>(result | sign);
}

/// The low 4 or 2 bits of an integer, as stored in a byte.
LENSLET_HOST_DEVICE inline std::uint8_t small_integer(const SmallType& type, std::int64_t value) {
  const unsigned low = static_cast<unsigned>(value) & ((1U << type.integer_bits) - 1U);
  return static_cast<std::uint8_t>((low ^ type.sign) - type.sign);
}

}  // namespace lenslet
