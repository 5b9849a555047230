#pragma once
// fp32 matrix product with prepacked B and a fused epilogue: the basis of im2col, direct_packed, Winograd, Gemm and
// MatMul. Why we have our own: docs/cpu-choices.md.

#include <cstdint>

#include "base/thread_pool.h"
#include "ops/core/activation.h"

namespace lenslet {

/// Floats that pack_b writes for B [k,n]; depends on the vector width of the CPU.
std::int64_t packed_b_floats(std::int64_t k, std::int64_t n);

/// Packs B [k,n], element (i,j) at b[i*row_stride + j*col_stride], into the kernels' panels: two vectors of columns
/// each (the last one or two), [k][columns], zero-padded. One of the strides is 1. `packed` should be 64-byte aligned.
/// Packed data is for this process only: panels differ between CPUs.
void pack_b(const float* b, std::int64_t row_stride, std::int64_t col_stride, std::int64_t k, std::int64_t n,
            float* packed);

/// The rows of A: row i = (image*height + line)*width + pixel starts at
///   base + image*image_stride + line*line_stride + pixel*stride        (strides in floats).
/// A plain row-major matrix has one line: only `base` and `stride` (lda) are set.
/// Rows may be segmented: k = segment_count*segment_length, and elements [s*segment_length, (s+1)*segment_length) are
/// at row start + segments[s]. So a convolution reads its windows in place.
struct GemmRows {
  const float* base = nullptr;
  std::int64_t stride = 0;
  std::int64_t width = 0;  ///< 0: all rows in one line
  std::int64_t line_stride = 0;
  std::int64_t height = 0;  ///< 0: all lines in one image
  std::int64_t image_stride = 0;
  const std::int64_t* segments = nullptr;  ///< null: one segment of length k at 0
  std::int64_t segment_count = 1;
};

/// C[m,n] = activation(A[m,k] B[k,n] + bias + residual), or C += A B. C's rows do not overlap A.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  GemmRows a;
  const float* b = nullptr;  ///< by pack_b
  float* c = nullptr;
  std::int64_t ldc = 0;
  bool accumulate = false;  ///< C += A B; then no residual
  /// Elements of k per partial sum: shorter ones have smaller rounding errors, and cost some 10 % of the time at 32. 0:
  /// about 256.
  std::int64_t partial_length = 0;
  const float* bias = nullptr;      ///< [n] or null
  const float* residual = nullptr;  ///< [m,n] with row stride ldc, or null; may be c itself
  Activation activation;
};

/// Runs on the pool, in blocks of rows and columns. The bits of an element depend on its row of A, its column of B, k,
/// segments, partial_length and the instruction set; not on m, n, its position or the number of threads. k = 0 gives
/// the epilogue of zeros. Allocates nothing.
void gemm(const Gemm& call, ThreadPool& pool);

/// The same in the calling thread, also inside a parallel_for piece.
void gemm_serial(const Gemm& call);

/// The most rows per micro-kernel call on this CPU.
std::int64_t gemm_tile_rows();
/// Columns of a full panel.
std::int64_t gemm_tile_cols();

/// About how many pieces gemm() divides [m,n,k] into for `threads` threads; 1: the caller computes it alone.
std::int64_t gemm_pieces(std::int64_t m, std::int64_t n, std::int64_t k, int threads);

/// The flops (2 per multiply-add) that the kernels issue for [m,n,k]: whole vectors of columns, and a single row
/// counted as two, because it waits for B. For cost models.
double gemm_issued_flops(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace lenslet
