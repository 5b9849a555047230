#pragma once
// Matrix products on CUDA. Plain C++: included where there is no CUDA, too.

#include <cstddef>
#include <cstdint>

#include "base/cuda/matrix_operand.h"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/problem.h"

namespace lenslet::cuda {

struct Context;

/// `batch` products of a problem, one after another in y; all pointers are on the device, y overlaps nothing. Of the
/// problem m, n, k, alpha, beta, C's strides and the activation count: B has been multiplied by its scales, and how A
/// and B lie is said here. m, n and batch are at least 1. alpha == 0 or beta == 0 still read their operands.
struct GemmCall {
  const MatrixProblem& problem;
  std::int64_t batch = 1;
  MatrixOperand a = {}, b = {};
  bool b_known = false;      ///< as in CuteCall
  const float* c = nullptr;  ///< null: none
  float* y = nullptr;
};

/// What can be multiplied: sizes below 2^31 with room for a tile, and as many tiles of 64x64.
constexpr bool gemm_fits(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1024;
  return m <= most && n <= most && k <= most && (m / 64 + 1) * (n / 64 + 1) <= most;
}

inline constexpr std::int64_t most_few_rows = 8;
inline constexpr std::int64_t most_few_rows_mma = 16;
inline constexpr int few_rows_mma_warps = 16;
/// Do tensor cores multiply so few rows of 16-bit types the faster, and with how many columns a warp? With few columns
/// each block has few, too, and more blocks read. 0: they do not. (lenslet-bench-gemm-cute --set=layers.)
constexpr int few_rows_mma_eights(std::int64_t m, std::int64_t n) {
  const bool many = n >= 2048;
  if (m > most_few_rows_mma || m <= (many ? 2 : 4)) return 0;
  return many ? 2 : 1;
}
/// Of a block of gemm_few_rows(): a warp has four columns, and `slices` warps share the sum over k.
inline constexpr int few_rows_warps = 8, few_rows_columns = 4;
constexpr std::int64_t few_rows_blocks(std::int64_t n, int slices) {
  const int columns = few_rows_columns * (few_rows_warps / slices);
  return (n + columns - 1) / columns;
}

/// Two blocks for each of so many multiprocessors, if sharing the sum can make as many.
constexpr int few_rows_slices(std::int64_t n, int units) {
  int slices = 1;
  while (slices < few_rows_warps && few_rows_blocks(n, slices) < 2 * std::int64_t{units}) slices *= 2;
  return slices;
}

// Each queues a call. Same inputs, same bits.

/// One product of up to most_few_rows rows of A, as they lie, with a transposed B (a fully connected layer at small
/// batch), whose bytes are the cost: it is read once. `vectors`: k and both ld are multiples of 4, and both operands
/// lie on 16 bytes.
void gemm_few_rows(const Context& context, const GemmCall& call, int slices, bool vectors);
/// The same with vectors, of an A of 16 bits that lies at `a` (call.a says how), while B and y are float32.
void gemm_few_rows_by_floats(const Context& context, const GemmCall& call, DType a_type, const void* a, int slices);
/// The same with vectors, of a B that lies at `b` in packed_row_bytes() a row (packed_weights.h); k is a multiple of 8.
void gemm_few_rows_packed(const Context& context, const GemmCall& call, const std::byte* b, int slices);
/// The same of 16-bit types, one product without a residual; call.problem.aligned: vectors.
void gemm_few_rows_half(const Context& context, const CuteCall& call, int slices);
/// The same by tensor cores, of up to most_few_rows_mma rows, call.problem.aligned. A warp has 8 * `eights` (1 or 2)
/// columns of y; the sum over k goes round the warps of a block.
void gemm_few_rows_mma(const Context& context, const CuteCall& call, int eights);
/// By cuBLAS, then the epilogue in place. k at least 1.
void gemm_cublas(const Context& context, const GemmCall& call, Numerics::Multiply multiply);
/// By plain tiles: what there is without cuBLAS.
void gemm_tiled(const Context& context, const GemmCall& call);

}  // namespace lenslet::cuda
