#pragma once
// NVIDIA's TensorFloat-32: a float with 10 mantissa bits.

#include <bit>
#include <cstdint>

namespace lenslet {

/// To nearest, ties away from zero, as cvt.rna.tf32.f32 rounds a float.
constexpr float tf32_from_f64(double value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if ((bits & 0x7F800000U) == 0x7F800000U) return std::bit_cast<float>(bits);
  return std::bit_cast<float>((bits + 0x1000U) & 0xFFFFE000U);
}

}  // namespace lenslet
