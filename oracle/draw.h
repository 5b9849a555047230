#pragma once
// Random tensors without zeros, which would let a device run at a higher clock. The same engine gives the same values
// on every machine.

#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>

#include "lenslet/tensor.h"

namespace lenslet::oracle {

/// Two operations a value, for large tensors; its high bits are good.
using FastEngine =
    std::linear_congruential_engine<std::uint64_t, 6364136223846793005U, 1442695040888963407U, 0 /* 2^64 */>;

/// Fills a tensor of any type and format. float32 and float64 are uniform in [-1, 1), 16-bit floats have a magnitude of
/// 0.5 to 1, bytes any value, other integers 0 or 1. Types without arithmetic get what a byte converts to. `engine()`
/// returns 64 random bits.
template <typename Engine>
void draw(Tensor& tensor, Engine& engine) {
  // Not std::uniform_real_distribution: its values differ between standard libraries.
  const auto symmetric = [&] { return 2 * (static_cast<double>(engine() >> 11U) * 0x1p-53) - 1; };
  const auto bit = [&] { return engine() >> 63U; };
  // Sign and mantissa are random, the exponent is that of 0.5.
  const auto fill_halves = [&](std::uint64_t exponent, int mantissa_bits) {
    auto* elements = static_cast<std::uint16_t*>(tensor.data());
    for (std::size_t i = 0; i < tensor.bytes() / 2; ++i) {
      const std::uint64_t mantissa = engine() >> (64 - mantissa_bits);
      elements[i] = static_cast<std::uint16_t>(exponent | mantissa | bit() << 15U);
    }
  };
  if (tensor.dtype() >= DType::f8e4m3fn) {
    Tensor bytes(DType::u8, tensor.shape(), tensor.format());
    draw(bytes, engine);
    std::memcpy(tensor.data(), bytes.to_dtype(tensor.dtype()).data(), tensor.bytes());
    return;
  }
  if (tensor.dtype() == DType::f16) return fill_halves(0x3800, 10);
  if (tensor.dtype() == DType::bf16) return fill_halves(0x3F00, 7);
  const auto fill = [&]<typename T>(std::type_identity<T>) {
    if (tensor.dtype() != dtype_of<T>::value) return;
    constexpr bool any_byte = sizeof(T) == 1 && !std::is_same_v<T, bool>;
    for (T& element : tensor.values<T>()) {
      if constexpr (std::is_floating_point_v<T>)
        element = static_cast<T>(symmetric());
      else
        element = static_cast<T>(any_byte ? engine() >> 56U : bit());
    }
  };
  [&]<typename... T>(std::type_identity<T>... types) { (fill(types), ...); }(
      std::type_identity<float>(), std::type_identity<double>(), std::type_identity<std::int8_t>(),
      std::type_identity<std::uint8_t>(), std::type_identity<std::int16_t>(), std::type_identity<std::uint16_t>(),
      std::type_identity<std::int32_t>(), std::type_identity<std::uint32_t>(), std::type_identity<std::int64_t>(),
      std::type_identity<std::uint64_t>(), std::type_identity<bool>());
}

}  // namespace lenslet::oracle
