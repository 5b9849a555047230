#pragma once
// Neighbouring elements as they are stored, one access for all of them, and as the floats that are computed with.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/half.h"

namespace lenslet::cuda {

/// Of 16 bytes.
template <typename T>
inline constexpr int vector_elems = 16 / static_cast<int>(sizeof(T));

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float to_float(BFloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

/// Rounded to nearest, ties to even.
template <typename T>
__device__ inline T rounded(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    T y;
    y.bits = std::is_same_v<T, Float16> ? __half_as_ushort(__float2half_rn(x))
                                        : __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return y;
  }
}

/// Reads elements that lie aligned to all of them.
template <int count, typename T>
__device__ inline void read_stored(float (&to)[count], const T* from) {
  struct alignas(sizeof(T) * count) Vector {
    T at[count];
  };
  const Vector v = *reinterpret_cast<const Vector*>(from);
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = to_float(v.at[i]);
}

template <int count, typename T>
__device__ inline void write_stored(T* to, const float (&from)[count]) {
  struct alignas(sizeof(T) * count) Vector {
    T at[count];
  } v;
#pragma unroll
  for (int i = 0; i < count; ++i) v.at[i] = rounded<T>(from[i]);
  *reinterpret_cast<Vector*>(to) = v;
}

}  // namespace lenslet::cuda
