#pragma once
// Vector loads with a bounds-checked tail: elements past the end of the array read zero.

#include <cuda_runtime.h>

namespace lenslet::cuda {

/// Elements i and i + 1 of `count`, zero past the end; i is even.
__device__ inline float2 pair_of(const float* list, int i, int count) {
  if (i + 1 < count) return *reinterpret_cast<const float2*>(list + i);
  return {i < count ? list[i] : 0.0F, 0.0F};
}
/// The same of four; i is a multiple of 4.
__device__ inline float4 four_of(const float* list, int i, int count) {
  if (i + 3 < count) return *reinterpret_cast<const float4*>(list + i);
  const auto at = [&](int j) { return j < count ? list[j] : 0.0F; };
  return {at(i), at(i + 1), at(i + 2), 0.0F};
}

}  // namespace lenslet::cuda
