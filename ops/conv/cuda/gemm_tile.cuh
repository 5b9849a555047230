#pragma once
// Main loop of a tiled fp32 GEMM, C[m,n] += A[m,k] * B[k,n], on FFMA: the loop over k-blocks of gemm_step. The caller
// fills shared memory.
//
// A warp owns [8*rows x 4*cols] of the block tile as 8 x 4 lanes. A thread's rows are 8 apart; its columns are groups
// of four, 16 apart. A warp's 16-byte reads of A then touch 8 adjacent rows, which a pitch of 20 floats spreads over
// all banks, and those of B 64 adjacent bytes.

#include <cuda_runtime.h>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/launch.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet::cuda {

/// A thread's position in the tile.
template <typename Tile>
struct ThreadPlace {
  int row;  ///< the first; the others follow 8 apart
  int col;  ///< the first; groups of four, 16 apart
  __device__ ThreadPlace() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    // Adjacent lanes read the same row of A, and lanes two apart the same columns of B: a half warp's 16-byte reads are
    // then one wavefront.
    row = warp % Tile::warps_m * 8 * Tile::rows + (lane >> 1) % 8;
    col = warp / Tile::warps_m * 4 * Tile::cols + 4 * ((lane & 1) + (lane >> 4) * 2);
  }
};

__device__ inline void read_vector(float (&to)[4], const float* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x;
  to[1] = v.y;
  to[2] = v.z;
  to[3] = v.w;
}
__device__ inline void read_vector(float (&to)[1], const float* from) { to[0] = *from; }
__device__ inline void read_vector(float (&to)[2], const float* from) {
  const float2 v = *reinterpret_cast<const float2*>(from);
  to[0] = v.x;
  to[1] = v.y;
}

/// accumulators += the products of one k-block at `a` and `b` in shared memory.
template <typename Tile>
__device__ inline void multiply_step(const float* a, const float* b, const ThreadPlace<Tile>& place,
                                     float (&sum)[Tile::rows][Tile::cols]) {
  a += place.row * Tile::a_pitch;
  b += place.col;
  // k per read of A. Beside 64 accumulators, four of each row would exceed 128 registers.
  constexpr int piece = Tile::threads > 128 ? 2 : 4;
#pragma unroll
  for (int first = 0; first < gemm_step; first += piece) {
    float left[Tile::rows][piece];
#pragma unroll
    for (int i = 0; i < Tile::rows; ++i) read_vector(left[i], a + 8 * i * Tile::a_pitch + first);
#pragma unroll
    for (int k = 0; k < piece; ++k) {
      float right[Tile::cols / 4][4];
#pragma unroll
      for (int j = 0; j < Tile::cols / 4; ++j) read_vector(right[j], b + (first + k) * Tile::n + 16 * j);
#pragma unroll
      for (int i = 0; i < Tile::rows; ++i)
#pragma unroll
        for (int j = 0; j < Tile::cols; ++j) sum[i][j] = fmaf(left[i][k], right[j / 4][j % 4], sum[i][j]);
    }
  }
}

/// accumulators += all `steps` k-blocks, through a ring of Tile::stages stages that load(stage) fills asynchronously.
/// The caller has issued the first Tile::stages - 1 loads. Each load is one group of copies, empty past the last
/// k-block, so that waits count k-blocks.
template <typename Tile, typename Load>
__device__ inline void multiply_steps(float* stages, int steps, const ThreadPlace<Tile>& place, const Load& load,
                                      float (&sum)[Tile::rows][Tile::cols]) {
  int slot = 0, load_slot = Tile::stages - 1;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<Tile::stages - 2>();
    // Also: the stage multiplied last is free and filled next.
    __syncthreads();
    if (step + Tile::stages - 1 < steps) load(stages + load_slot * Tile::stage_floats);
    commit_copies();
    const float* const stage = stages + slot * Tile::stage_floats;
    multiply_step<Tile>(stage, stage + Tile::a_floats, place, sum);
    slot = slot + 1 == Tile::stages ? 0 : slot + 1;
    load_slot = load_slot + 1 == Tile::stages ? 0 : load_slot + 1;
  }
}

}  // namespace lenslet::cuda
