#pragma once
// Four floats at once, or eight that lie in memory as halves: 16-byte loads and stores, arithmetic element by element.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/convert.h"

namespace lenslet::cuda {

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float4 operator/(float4 a, float b) { return make_float4(a.x / b, a.y / b, a.z / b, a.w / b); }

struct Eight {
  float4 low, high;
};
__device__ inline Eight operator+(Eight a, Eight b) { return {a.low + b.low, a.high + b.high}; }
__device__ inline Eight operator/(Eight a, float b) { return {a.low / b, a.high / b}; }

/// Of f16 or bf16, as they lie in memory.
template <typename T>
struct alignas(16) EightHalves {
  T at[8];
};

/// What is computed with where T lies in memory: of halves floats.
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
  const T* v = stored.at;
  return {make_float4(widened(v[0]), widened(v[1]), widened(v[2]), widened(v[3])),
          make_float4(widened(v[4]), widened(v[5]), widened(v[6]), widened(v[7]))};
}

/// The inverse: halves are rounded once.
template <typename Stored, typename Value>
__device__ Stored as_stored(const Value& value) {
  if constexpr (std::is_same_v<Stored, Value>) {
    return value;
  } else if constexpr (is_half<Stored>) {
    return narrowed<Stored>(value);
  } else {
    using T = std::remove_extent_t<decltype(Stored::at)>;
    const float4 &a = value.low, &b = value.high;
    return {{narrowed<T>(a.x), narrowed<T>(a.y), narrowed<T>(a.z), narrowed<T>(a.w), narrowed<T>(b.x), narrowed<T>(b.y),
             narrowed<T>(b.z), narrowed<T>(b.w)}};
  }
}

/// Can arrays at these addresses be read and written 16 bytes at a time?
template <typename... Pointers>
bool quad_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % sizeof(float4) == 0) && ...);
}

}  // namespace lenslet::cuda
