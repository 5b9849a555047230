#pragma once
// Elements within a 16-byte vector.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace lenslet::cuda {

/// The unsigned integer of `bytes` bytes: 1, 2, 4, 8, and uint4 for 16.
template <int bytes>
struct BitsOf;
template <>
struct BitsOf<1> : std::type_identity<std::uint8_t> {};
template <>
struct BitsOf<2> : std::type_identity<std::uint16_t> {};
template <>
struct BitsOf<4> : std::type_identity<std::uint32_t> {};
template <>
struct BitsOf<8> : std::type_identity<std::uint64_t> {};
template <>
struct BitsOf<16> : std::type_identity<uint4> {};
template <int bytes>
using Bits = typename BitsOf<bytes>::type;

/// 32-bit word i of v. Free if i is known after unrolling.
__device__ inline std::uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/// Element k of the 16 / sizeof(T) in v; T is an unsigned integer.
template <typename T>
__device__ T element(const uint4& v, int k) {
  if constexpr (sizeof(T) == 8) {
    return word(v, 2 * k) | static_cast<std::uint64_t>(word(v, 2 * k + 1)) << 32;
  } else {
    const int bits = k * static_cast<int>(sizeof(T)) * 8;
    return static_cast<T>(word(v, bits / 32) >> bits % 32);
  }
}

/// The inverse: 16 bytes from element_at(0), element_at(1) ...
template <typename T, typename ElementAt>
__device__ uint4 vector_of(const ElementAt& element_at) {
  std::uint32_t words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 8) {
      words[w] = static_cast<std::uint32_t>(element_at(w / 2) >> 32 * (w % 2));
    } else {
      constexpr int per_word = 4 / static_cast<int>(sizeof(T));
      words[w] = 0;
#pragma unroll
      for (int i = 0; i < per_word; ++i)
        words[w] |= static_cast<std::uint32_t>(element_at(w * per_word + i)) << 8 * static_cast<int>(sizeof(T)) * i;
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace lenslet::cuda
