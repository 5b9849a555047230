#pragma once
// Matrix products on CUDA. Plain C++: also included without CUDA.

#include <cstddef>
#include <cstdint>

#include "base/cuda/matrix_operand.h"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/problem.h"

namespace lenslet::cuda {

struct Context;

/// `batch` products of a problem, contiguous in y; all pointers are device memory, y overlaps nothing. Of the problem,
/// m, n, k, alpha, beta, C's strides and the activation are used: B is already scaled, and the layouts of A and B are
/// given here. m, n and batch are at least 1. Operands are read even for alpha == 0 or beta == 0.
struct GemmCall {
  const MatrixProblem& problem;
  std::int64_t batch = 1;
  MatrixOperand a = {}, b = {};
  bool b_known = false;      ///< as in CuteCall
  const float* c = nullptr;  ///< null: none
  float* y = nullptr;
};

/// Size limits: below 2^31 including a tile, and as many tiles of 64x64.
constexpr bool gemm_fits(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1024;
  return m <= most && n <= most && k <= most && (m / 64 + 1) * (n / 64 + 1) <= most;
}

inline constexpr std::int64_t most_few_rows = 8;
inline constexpr std::int64_t most_few_rows_mma = 16;
inline constexpr int few_rows_mma_warps = 16;
/// Columns per warp (in eights) if tensor cores are faster for so few rows of 16-bit types, else 0. With few columns
/// each block takes few, so that more blocks read. (lenslet-bench-gemm-cute --set=layers.)
constexpr int few_rows_mma_eights(std::int64_t m, std::int64_t n) {
  const bool many = n >= 2048;
  if (m > most_few_rows_mma || m <= (many ? 2 : 4)) return 0;
  return many ? 2 : 1;
}
/// Blocks of gemm_few_rows(): a warp has four columns, and `split_k` warps split k.
inline constexpr int few_rows_warps = 8, few_rows_columns = 4;
constexpr std::int64_t few_rows_blocks(std::int64_t n, int split_k) {
  const int columns = few_rows_columns * (few_rows_warps / split_k);
  return (n + columns - 1) / columns;
}

/// Split-K splits for two blocks per multiprocessor, where possible.
constexpr int few_rows_split_k(std::int64_t n, int units) {
  int split_k = 1;
  while (split_k < few_rows_warps && few_rows_blocks(n, split_k) < 2 * std::int64_t{units}) split_k *= 2;
  return split_k;
}

// Each queues a call. Deterministic: same inputs, same bits.

/// One product with up to most_few_rows rows of A, in place, and a transposed B (a fully connected layer at small
/// batch). Bound by B's bytes, which are read once. `vectors`: k and both ld are multiples of 4, both operands 16-byte
/// aligned.
void gemm_few_rows(const Context& context, const GemmCall& call, int split_k, bool vectors);
/// The same with vectors, for a 16-bit A at `a` (layout in call.a); B and y are float32.
void gemm_few_rows_by_floats(const Context& context, const GemmCall& call, DType a_type, const void* a, int split_k);
/// The same with vectors, for 20-bit B at `b`, packed_row_bytes() per row (packed_weights.h); k is a multiple of 8.
void gemm_few_rows_packed(const Context& context, const GemmCall& call, const std::byte* b, int split_k);
/// The same for 16-bit types, one product without residual; call.problem.aligned: vectors.
void gemm_few_rows_half(const Context& context, const CuteCall& call, int split_k);
/// The same on tensor cores, up to most_few_rows_mma rows, call.problem.aligned. A warp computes 8 * `eights` (1 or 2)
/// columns of y; the warps of a block take turns along k.
void gemm_few_rows_mma(const Context& context, const CuteCall& call, int eights);
/// cuBLAS, then the epilogue in place. k is at least 1.
void gemm_cublas(const Context& context, const GemmCall& call, Numerics::Multiply multiply);
/// Plain tiles: the fallback without cuBLAS.
void gemm_tiled(const Context& context, const GemmCall& call);

}  // namespace lenslet::cuda
