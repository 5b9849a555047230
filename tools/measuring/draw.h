#pragma once
// Random tensors, never zeros: those let a device run at a higher clock. The same engine gives the same values on every
// machine.

#include <cstdint>
#include <random>

#include "lenslet/tensor.h"

namespace lenslet::tool {

/// Two operations a value, for large tensors: the high bits are good.
using FastEngine =
    std::linear_congruential_engine<std::uint64_t, 6364136223846793005U, 1442695040888963407U, 0 /* 2^64 */>;

/// Fills a tensor of any type and format: floats uniform in [-1, 1), those of 16 bits of magnitude 0.5 to 1, bytes of
/// any value, other integers 0 or 1. `engine()` gives 64 random bits.
template <typename Engine>
void draw(Tensor& tensor, Engine& engine) {
  const auto fill = [&]<typename T>(T, auto value) {
    for (T& element : tensor.values<T>()) element = static_cast<T>(value());
  };
  // Not std::uniform_real_distribution: its values differ between standard libraries.
  const auto symmetric = [&] { return 2 * (static_cast<double>(engine() >> 11U) * 0x1p-53) - 1; };
  const auto byte = [&] { return engine() >> 56U; };
  const auto bit = [&] { return engine() >> 63U; };
  // Sign and mantissa drawn, the exponent that of 0.5.
  const auto fill_halves = [&](std::uint64_t exponent, int mantissa_bits) {
    auto* elements = static_cast<std::uint16_t*>(tensor.data());
    for (std::size_t i = 0; i < tensor.bytes() / 2; ++i) {
      const std::uint64_t mantissa = engine() >> (64 - mantissa_bits);
      elements[i] = static_cast<std::uint16_t>(exponent | mantissa | bit() << 15U);
    }
  };
  switch (tensor.dtype()) {
    case DType::f32:
      return fill(float{}, symmetric);
    case DType::f64:
      return fill(double{}, symmetric);
    case DType::f16:
      return fill_halves(0x3800, 10);
    case DType::bf16:
      return fill_halves(0x3F00, 7);
    case DType::i8:
      return fill(std::int8_t{}, byte);
    case DType::u8:
      return fill(std::uint8_t{}, byte);
    case DType::i16:
      return fill(std::int16_t{}, bit);
    case DType::u16:
      return fill(std::uint16_t{}, bit);
    case DType::i32:
      return fill(std::int32_t{}, bit);
    case DType::i64:
      return fill(std::int64_t{}, bit);
    case DType::boolean:
      return fill(bool{}, bit);
  }
}

}  // namespace lenslet::tool
