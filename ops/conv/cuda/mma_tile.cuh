#pragma once
// A warp's tile of tensor core products (base/cuda/mma.cuh), operands from shared memory.
//
// A row in shared memory is mma_step_bytes long; its eight 16-byte chunks are swizzled by the row number, so that
// ldmatrix's eight rows, and the chunks of a copy, are in different banks.

#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/mma_gemm_plan.h"

namespace lenslet::cuda {

/// Byte offset of chunk `chunk` of row `row`.
__device__ inline int mma_offset(int row, int chunk) { return row * mma_step_bytes + ((chunk ^ (row & 7)) << 4); }

/// A warp's accumulator tile, rows*16 by cols*8, and its position in the block tile.
template <int rows, int cols>
struct WarpAcc {
  static_assert(cols % 2 == 0);  // B comes in pairs
  float at[rows][cols][4] = {};

  /// += one k-block at `a` and `b`, shared-memory addresses of the warp's first row and column, both multiples of 8
  /// rows.
  template <typename T>
  __device__ void multiply_step(unsigned a, unsigned b) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int a_row = lane % 16, b_row = lane % 8 + lane / 16 * 8;
#pragma unroll
    for (int chunk = 0; chunk < mma_step_bytes / 16; chunk += 2) {
      unsigned left[rows][4], right[cols / 2][4];
      const int a_at = mma_offset(a_row, chunk + lane / 16), b_at = mma_offset(b_row, chunk + lane / 8 % 2);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        ldmatrix(left[i], a + static_cast<unsigned>(i * 16 * mma_step_bytes + a_at));
        round_operand<T>(left[i]);
      }
#pragma unroll
      for (int j = 0; j < cols / 2; ++j) ldmatrix(right[j], b + static_cast<unsigned>(j * 16 * mma_step_bytes + b_at));
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < cols; ++j) mma<T>(at[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }

  /// Stores the accumulators as floats with row pitch `pitch`; `to` is the warp's first element.
  __device__ void lay_down(float* to, int pitch) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    to += lane / 4 * pitch + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < cols; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(to + (i * 16 + half * 8) * pitch + j * 8) =
              make_float2(at[i][j][half * 2], at[i][j][half * 2 + 1]);
  }
};

}  // namespace lenslet::cuda
