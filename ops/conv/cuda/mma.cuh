#pragma once
// Warp-level tensor core products (mma.sync; PTX ISA, "Warp Level Matrix Instructions"), compute_80 and newer: operands
// from shared memory, 16 rows of A by 8 columns of B, 32 bytes of K, fp32 accumulators.
//
// A row in shared memory is mma_step_bytes long; its eight 16-byte chunks are swizzled by the row number, so that
// ldmatrix's eight rows, and the chunks of a copy, are in different banks.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/half.h"
#include "ops/conv/cuda/mma_gemm_plan.h"

namespace lenslet::cuda {

/// Byte offset of chunk `chunk` of row `row`.
__device__ inline int mma_offset(int row, int chunk) { return row * mma_step_bytes + ((chunk ^ (row & 7)) << 4); }

/// Loads four 8x8 matrices of 16-bit elements (ldmatrix); lane l addresses row l % 8 of matrix l / 8.
__device__ inline void load_matrices(unsigned (&to)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared));
}

/// Element traits: memory type and instruction. `a` comes from load_matrices().
template <typename T>
struct Mma;
template <>
struct Mma<Float16> {
  __device__ static void prepare(unsigned (&)[4]) {}
  __device__ static void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};
template <>
struct Mma<BFloat16> {
  __device__ static void prepare(unsigned (&)[4]) {}
  __device__ static void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};
/// TF32: the instruction truncates to 10 mantissa bits, so A is rounded to nearest first. B was rounded when packed.
template <>
struct Mma<float> {
  __device__ static void prepare(unsigned (&a)[4]) {
#pragma unroll
    for (unsigned& bits : a) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
  }
  __device__ static void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

/// A warp's accumulator tile, rows*16 by cols*8, and its position in the block tile.
template <int rows, int cols>
struct WarpSums {
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
        load_matrices(left[i], a + static_cast<unsigned>(i * 16 * mma_step_bytes + a_at));
        Mma<T>::prepare(left[i]);
      }
#pragma unroll
      for (int j = 0; j < cols / 2; ++j)
        load_matrices(right[j], b + static_cast<unsigned>(j * 16 * mma_step_bytes + b_at));
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < cols; ++j)
          Mma<T>::multiply(at[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
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
