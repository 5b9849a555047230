#pragma once
// Exchange between the threads of a warp.

#include <cuda_runtime.h>

#include <cstring>
#include <type_traits>

namespace lenslet::cuda {

inline constexpr int warp_threads = 32;

/// `value` of the lane with the bits of `mask` flipped. All 32 threads take part.
template <typename T>
__device__ T shuffle_xor(const T& value, int mask) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(unsigned) == 0);
  constexpr int words = sizeof(T) / sizeof(unsigned);
  unsigned raw[words];
  std::memcpy(raw, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) raw[i] = __shfl_xor_sync(0xffffffffU, raw[i], mask);
  T other = value;
  std::memcpy(&other, raw, sizeof(T));
  return other;
}

}  // namespace lenslet::cuda
