#pragma once
// Products of spectra, three real GEMMs each (fft_plan.h). A warp owns [8*rows x 16] of the block tile as 8 x 4 lanes,
// as in gemm_tile.cuh. A thread's rows are 8 apart, its four columns adjacent, three accumulators each.

#include <cuda_runtime.h>

#include "base/cuda/launch.h"
#include "ops/conv/cuda/fft_plan.h"
#include "ops/conv/cuda/gemm_tile.cuh"

namespace lenslet::cuda {

struct FftProduct {
  const float* v;  ///< [slots][tiles][2][c]
  const float* u;  ///< [slots][3][c][k]
  float* product;  ///< [slots][tiles][2][k]
  int tiles, c, k, slots;
};

/// Source and destination of a thread's copies of one k-block. Rows of V and columns of U past the end repeat the last
/// one, so that copies need no predicate; their products are not stored. Channels past the end (8 or none of a k-block
/// of 16) are zeros.
template <typename Tile>
class FftStepLoader {
  static constexpr int half_vectors = Tile::step / 4;  ///< in a row of a or of b
  static constexpr int a_rows = Tile::threads / (2 * half_vectors), a_copies = Tile::m / a_rows;
  static_assert(a_rows * 2 * half_vectors == Tile::threads && a_copies * a_rows == Tile::m);
  static constexpr int b_row_vectors = Tile::n / 4, b_vectors = Tile::b_floats / 4;
  static constexpr int b_copies = (b_vectors + Tile::threads - 1) / Tile::threads;

 public:
  __device__ FftStepLoader(const FftProduct& g, int first_row, int first_column)
      : thread_(static_cast<int>(threadIdx.x)), k_(g.k), a_left_(g.c), b_left_(g.c) {
    const auto slot = static_cast<long long>(blockIdx.z);
    const int row = thread_ / (2 * half_vectors), vector = thread_ % (2 * half_vectors);
    a_channel_ = vector % half_vectors * 4;
    a_ = g.v + slot * g.tiles * 2 * g.c + vector / half_vectors * g.c + a_channel_;
    b_ = g.u + slot * 3 * g.c * g.k;
#pragma unroll
    for (int i = 0; i < a_copies; ++i) a_from_[i] = min(first_row + row + i * a_rows, g.tiles - 1) * 2 * g.c;
    a_to_ = row * Tile::a_pitch + vector * 4;
#pragma unroll
    for (int i = 0; i < b_copies; ++i) {
      const int at = thread_ + i * Tile::threads, line = at / b_row_vectors, column = at % b_row_vectors * 4;
      b_from_[i] = (line / Tile::step * g.c + line % Tile::step) * g.k + min(first_column + column, g.k - 4);
    }
  }

  /// Starts the copies of the next k-block of V and U.
  __device__ void load_a(float* stage) {
    const bool exists = Tile::step == fft_channels || a_channel_ < a_left_;
#pragma unroll
    for (int i = 0; i < a_copies; ++i)
      copy_async<4>(stage + a_to_ + i * a_rows * Tile::a_pitch, exists ? a_ + a_from_[i] : a_, exists);
    a_ += Tile::step;
    a_left_ -= Tile::step;
  }
  __device__ void load_b(float* stage) {
#pragma unroll
    for (int i = 0; i < b_copies; ++i) {
      const int at = thread_ + i * Tile::threads;
      if (b_vectors % Tile::threads != 0 && at >= b_vectors) break;
      const bool exists = Tile::step == fft_channels || at / b_row_vectors % Tile::step < b_left_;
      copy_async<4>(stage + Tile::a_floats + at * 4, exists ? b_ + b_from_[i] : b_, exists);
    }
    b_ += Tile::step * k_;
    b_left_ -= Tile::step;
  }

 private:
  const int thread_, k_;
  const float* a_;
  const float* b_;
  int a_left_, b_left_;  ///< channels
  int a_channel_;        ///< within a k-block
  int a_from_[a_copies], b_from_[b_copies];
  int a_to_;
};

/// accumulators += `channels` (a multiple of 4) channels of the k-block at `a` and `b` in shared memory.
template <typename Tile>
__device__ inline void multiply_complex_step(const float* a, const float* b, int channels,
                                             float (&sum)[3][Tile::rows][Tile::cols]) {
  constexpr int piece = 4;
  // Not unrolled further: no faster, and takes registers.
#pragma unroll(Tile::step == fft_channels ? 2 : 1)
  for (int first = 0; first < Tile::step; first += piece) {
    if (Tile::step > fft_channels && first >= channels) break;
    float re[Tile::rows][piece], im[Tile::rows][piece];
#pragma unroll
    for (int i = 0; i < Tile::rows; ++i) {
      read_vector(re[i], a + 8 * i * Tile::a_pitch + first);
      read_vector(im[i], a + 8 * i * Tile::a_pitch + first + Tile::step);
    }
#pragma unroll
    for (int k = 0; k < piece; ++k) {
      float both[Tile::rows];
#pragma unroll
      for (int i = 0; i < Tile::rows; ++i) both[i] = re[i][k] + im[i][k];
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        float right[Tile::cols / 4][4];
#pragma unroll
        for (int j = 0; j < Tile::cols / 4; ++j)
          read_vector(right[j], b + (part * Tile::step + first + k) * Tile::n + 16 * j);
#pragma unroll
        for (int i = 0; i < Tile::rows; ++i) {
          const float left = part == 0 ? both[i] : part == 1 ? re[i][k] : im[i][k];
#pragma unroll
          for (int j = 0; j < Tile::cols; ++j) sum[part][i][j] = fmaf(left, right[j / 4][j % 4], sum[part][i][j]);
        }
      }
    }
  }
}

/// Grid: row tiles, column tiles, slots. Rows run fastest, so that blocks that need the same part of U run together.
template <typename Tile>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks) fft_product_kernel(const FftProduct g) {
  extern __shared__ float4 shared4[];
  float* const stages = reinterpret_cast<float*>(shared4);
  const int first_row = static_cast<int>(blockIdx.x) * Tile::m, first_column = static_cast<int>(blockIdx.y) * Tile::n;
  FftStepLoader<Tile> loader(g, first_row, first_column);
  const int steps = (g.c + Tile::step - 1) / Tile::step;
  // U is constant, so it is loaded before the previous kernel ends; V is not.
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead)
    if (ahead < steps) loader.load_b(stages + ahead * Tile::stage_floats);
  wait_for_previous();
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead) {
    if (ahead < steps) loader.load_a(stages + ahead * Tile::stage_floats);
    commit_copies();
  }

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp % Tile::warps_m * 8 * Tile::rows + (lane >> 1) % 8;
  const int column = warp / Tile::warps_m * 4 * Tile::cols + 4 * ((lane & 1) + (lane >> 4) * 2);
  float sum[3][Tile::rows][Tile::cols] = {};
  int slot = 0, load_slot = Tile::stages - 1;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<Tile::stages - 2>();
    // Also: the stage multiplied last is free and filled next.
    __syncthreads();
    if (step + Tile::stages - 1 < steps) {
      loader.load_a(stages + load_slot * Tile::stage_floats);
      loader.load_b(stages + load_slot * Tile::stage_floats);
    }
    commit_copies();
    const float* const stage = stages + slot * Tile::stage_floats;
    multiply_complex_step<Tile>(stage + row * Tile::a_pitch, stage + Tile::a_floats + column, g.c - step * Tile::step,
                                sum);
    slot = slot + 1 == Tile::stages ? 0 : slot + 1;
    load_slot = load_slot + 1 == Tile::stages ? 0 : load_slot + 1;
  }

  let_next_start();
  float* const product = g.product + static_cast<long long>(blockIdx.z) * g.tiles * 2 * g.k + first_column + column;
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i) {
    const int at = first_row + row + 8 * i;
    if (at >= g.tiles) break;
#pragma unroll
    for (int j = 0; j < Tile::cols; j += 4) {
      if (first_column + column + 4 * j >= g.k) break;
      float* const to = product + at * 2 * g.k + 4 * j;
      float re[4], im[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        re[e] = sum[0][i][j + e] - sum[2][i][j + e];
        im[e] = sum[0][i][j + e] + sum[1][i][j + e];
      }
      *reinterpret_cast<float4*>(to) = make_float4(re[0], re[1], re[2], re[3]);
      *reinterpret_cast<float4*>(to + g.k) = make_float4(im[0], im[1], im[2], im[3]);
    }
  }
}

}  // namespace lenslet::cuda
