#pragma once
// Vectors of four floats or eight halves: 16-byte loads and stores, elementwise arithmetic.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/convert.h"

namespace lenslet::cuda {

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float4 operator-(float4 a, float4 b) {
  return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ inline float4 operator*(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ inline float4 operator/(float4 a, float b) { return make_float4(a.x / b, a.y / b, a.z / b, a.w / b); }

struct Eight {
  float4 low, high;
};
__device__ inline Eight operator+(Eight a, Eight b) { return {a.low + b.low, a.high + b.high}; }
__device__ inline Eight operator-(Eight a, Eight b) { return {a.low - b.low, a.high - b.high}; }
__device__ inline Eight operator*(Eight a, Eight b) { return {a.low * b.low, a.high * b.high}; }
__device__ inline Eight operator/(Eight a, float b) { return {a.low / b, a.high / b}; }

/// Eight f16 or bf16, stored as words: on selects the compiler would split and rejoin single halves (121 of 664
/// instructions of a 3x3 maximum).
template <typename T>
struct alignas(16) EightHalves {
  using Half = T;
  std::uint32_t pairs[4];  ///< the lower address in the lower half

  __device__ T at(int i) const { return {static_cast<std::uint16_t>(pairs[i / 2] >> 16 * (i % 2))}; }
};
template <typename T>
__device__ std::uint32_t paired(T low, T high) {
  return std::uint32_t{low.bits} | std::uint32_t{high.bits} << 16;
}

/// The arithmetic type for T in memory: floats for halves.
template <typename T>
struct LoadedAs : std::type_identity<std::conditional_t<is_half<T>, float, T>> {};
template <typename T>
struct LoadedAs<EightHalves<T>> : std::type_identity<Eight> {};
template <typename T>
using Loaded = typename LoadedAs<T>::type;

template <typename T>
__device__ Loaded<T> loaded(const T& stored) {
  if constexpr (is_half<T>)
    return widened(stored);
  else
    return stored;
}
template <typename T>
__device__ Eight loaded(const EightHalves<T>& stored) {
  const auto at = [&](int i) { return widened(stored.at(i)); };
  return {make_float4(at(0), at(1), at(2), at(3)), make_float4(at(4), at(5), at(6), at(7))};
}

/// The inverse: rounds halves once.
template <typename Stored, typename Value>
__device__ Stored as_stored(const Value& value) {
  if constexpr (std::is_same_v<Stored, Value>) {
    return value;
  } else if constexpr (is_half<Stored>) {
    return narrowed<Stored>(value);
  } else {
    const auto pair = [](float low, float high) {
      using T = typename Stored::Half;
      return paired(narrowed<T>(low), narrowed<T>(high));
    };
    const float4 &a = value.low, &b = value.high;
    return {{pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w)}};
  }
}

/// True if all addresses are aligned for 16-byte access.
template <typename... Pointers>
bool quad_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % sizeof(float4) == 0) && ...);
}

}  // namespace lenslet::cuda
