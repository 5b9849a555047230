#pragma once
// Short rows through shared memory: the block moves its stretch of memory 16 bytes at a time, then each thread has a
// row to itself. A row read directly would cost a transaction an element.

#include <cuda_runtime.h>

#include <cstdint>

namespace lenslet::cuda {

/// A row for each thread of a block.
inline constexpr int staged_rows = 128;
/// 7x7 pixels; a block's rows take 25 KB, so that nine blocks fit a multiprocessor of an H200.
inline constexpr int staged_length = 49;

/// Are rows of `length` floats from and to 16-byte aligned memory best staged? Those of whole float4 need no staging,
/// and would meet in the same banks; the others meet two by two at worst.
constexpr bool stage_rows(std::int64_t rows, std::int64_t length) {
  constexpr std::int64_t least_rows = 1 << 16;  // fewer leave multiprocessors idle
  return length % 4 != 0 && length <= staged_length && rows >= least_rows;
}

/// shared[count] = x[count], aligned to 16 bytes; by all threads of the block, who meet before they read.
__device__ inline void stage(const float* x, float* shared, int count) {
  constexpr int unroll = 8;  // loads in flight a thread
  const auto* from = reinterpret_cast<const float4*>(x);
  auto* to = reinterpret_cast<float4*>(shared);
  const int thread = static_cast<int>(threadIdx.x), quads = count / 4;
#pragma unroll 1
  for (int i = thread; i < quads; i += unroll * staged_rows) {
    float4 values[unroll]{};
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (i + j * staged_rows < quads) values[j] = from[i + j * staged_rows];
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (i + j * staged_rows < quads) to[i + j * staged_rows] = values[j];
  }
  if (thread < count % 4) shared[4 * quads + thread] = x[4 * quads + thread];
}

/// y[count] = shared[count], likewise.
__device__ inline void unstage(const float* shared, float* y, int count) {
  const auto* from = reinterpret_cast<const float4*>(shared);
  auto* to = reinterpret_cast<float4*>(y);
  const int thread = static_cast<int>(threadIdx.x), quads = count / 4;
#pragma unroll 4
  for (int i = thread; i < quads; i += staged_rows) to[i] = from[i];
  if (thread < count % 4) y[4 * quads + thread] = shared[4 * quads + thread];
}

}  // namespace lenslet::cuda
