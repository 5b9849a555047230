#pragma once
// Vectors of adjacent elements as stored (one access) and as floats for arithmetic.

#include "base/convert.h"

namespace lenslet::cuda {

/// Elements of 16 bytes.
template <typename T>
inline constexpr int vector_elems = 16 / static_cast<int>(sizeof(T));

/// Loads `count` elements, aligned to the whole vector.
template <int count, typename T>
__device__ inline void read_stored(float (&to)[count], const T* from) {
  struct alignas(sizeof(T) * count) Vector {
    T at[count];
  };
  const Vector v = *reinterpret_cast<const Vector*>(from);
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = convert<float>(v.at[i]);
}

/// Stores, rounding to nearest, ties to even.
template <int count, typename T>
__device__ inline void write_stored(T* to, const float (&from)[count]) {
  struct alignas(sizeof(T) * count) Vector {
    T at[count];
  } v;
#pragma unroll
  for (int i = 0; i < count; ++i) v.at[i] = convert<T>(from[i]);
  *reinterpret_cast<Vector*>(to) = v;
}

}  // namespace lenslet::cuda
