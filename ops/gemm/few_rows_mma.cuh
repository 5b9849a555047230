#pragma once
// Few rows of 16-bit types on tensor cores: y[i][j] = dot(a[i], b[j]), b [n][k], up to 16 rows of A. Bound by reading
// b, which goes from memory straight to registers: any order of k is valid if both operands use the same, so a thread's
// mma.sync fragment is eight consecutive elements, one 16-byte load, instead of four pairs. Rows of A are the 16 rows
// of the instruction, rows of b its 8 columns.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "ops/gemm/few_rows.cuh"

namespace lenslet::cuda {

struct FewRows {
  const void *a = nullptr, *b = nullptr;
  void* y = nullptr;
  std::int64_t a_ld = 0, b_ld = 0;
  int m = 0, n = 0, k = 0;
  int b_known = 0;  ///< b was on the device before the network ran, so it may be read before the previous kernel ends
  DeviceEpilogue epilogue;
};

/// A warp processes 8 * eights rows of b, 32 * steps elements of k at a time; the warps of a block have the same rows
/// and take turns along k. halves: 2, or 1 for at most 8 rows of A. Rows of A and b are 16-byte aligned; k is a
/// multiple of 8.
template <typename T, typename Y, int halves, int eights, int steps>
__global__ void __launch_bounds__(32 * few_rows_mma_warps) few_rows_mma_kernel(const FewRows p) {
  using Element = std::conditional_t<std::is_same_v<T, __half>, Float16, BFloat16>;
  constexpr int warps = few_rows_mma_warps;
  __shared__ float parts[warps][halves * 8][eights * 8];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4, lane_k = lane % 4 * 8, first = static_cast<int>(blockIdx.x) * (eights * 8);
  constexpr int chunk = 32 * steps;

  // Out of range, b's last row is read again and not stored; A reads zero.
  const T* b_rows[eights];
#pragma unroll
  for (int e = 0; e < eights; ++e)
    b_rows[e] = static_cast<const T*>(p.b) + min(first + e * 8 + group, p.n - 1) * p.b_ld + lane_k;
  const T* const a_row = static_cast<const T*>(p.a) + group * p.a_ld + lane_k;

  uint4 weights[steps][eights];
  const auto load = [&](int at) {
#pragma unroll
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int e = 0; e < eights; ++e)
        weights[s][e] =
            at + s * 32 + lane_k < p.k ? __ldcs(reinterpret_cast<const uint4*>(b_rows[e] + at + s * 32)) : uint4{};
  };
  float acc[eights][4] = {};
  int at = warp * chunk;
  if (p.b_known != 0) load(at);
  wait_for_previous();
  let_next_start();
  if (p.b_known == 0) load(at);
  while (at < p.k) {
    uint4 values[steps][halves];
#pragma unroll
    for (int s = 0; s < steps; ++s)
#pragma unroll
      for (int half = 0; half < halves; ++half) {
        const bool inside = group + half * 8 < p.m && at + s * 32 + lane_k < p.k;
        values[s][half] = inside ? *reinterpret_cast<const uint4*>(a_row + half * 8 * p.a_ld + at + s * 32) : uint4{};
      }
#pragma unroll
    for (int s = 0; s < steps; ++s) {
      const uint4 upper = values[s][0], lower = halves > 1 ? values[s][halves - 1] : uint4{};
#pragma unroll
      for (int e = 0; e < eights; ++e) {
        mma<Element>(acc[e], {upper.x, lower.x, upper.y, lower.y}, weights[s][e].x, weights[s][e].y);
        mma<Element>(acc[e], {upper.z, lower.z, upper.w, lower.w}, weights[s][e].z, weights[s][e].w);
      }
    }
    at += warps * chunk;
    if (at < p.k) load(at);
  }

#pragma unroll
  for (int e = 0; e < eights; ++e)
#pragma unroll
    for (int half = 0; half < halves; ++half)
#pragma unroll
      for (int next = 0; next < 2; ++next)
        parts[warp][half * 8 + group][e * 8 + lane % 4 * 2 + next] = acc[e][half * 2 + next];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < halves * 8 * eights * 8; at += 32 * warps) {
    const int i = at / (eights * 8), column = at % (eights * 8), j = first + column;
    if (i >= p.m || j >= p.n) continue;
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += parts[w][i][column];
    static_cast<Y*>(p.y)[static_cast<std::int64_t>(i) * p.n + j] = Y(p.epilogue(sum, i, j));
  }
}

}  // namespace lenslet::cuda
