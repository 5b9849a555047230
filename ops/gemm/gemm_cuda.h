#pragma once
// Matrix products on CUDA for Gemm and MatMul. Plain C++: included where there is no CUDA, too.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/cuda/matrix_operand.h"
#include "ops/core/activation.h"

namespace lenslet::cuda {

struct Context;

/// y = activation(alpha * A * B + beta * C) for each of `batch` products: A [m,k], B [k,n], y [m,n] packed row-major,
/// one after another; C element (i,j) at c[i * c_row + j * c_col], the same for all products. All pointers are on the
/// device; y overlaps nothing. alpha == 0 or beta == 0 still read their operands.
struct GemmCall {
  std::int64_t m = 0, n = 0, k = 0;
  MatrixOperand a, b;
  float* y = nullptr;
  std::int64_t batch = 1;
  float alpha = 1, beta = 1;
  const float* c = nullptr;  ///< null: none
  std::int64_t c_row = 0, c_col = 0;
  Activation activation;
};

/// What gemm() takes: sizes below 2^31 with room for a tile, and as many tiles of 64x64.
constexpr bool gemm_fits(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1024;
  return m <= most && n <= most && k <= most && (m / 64 + 1) * (n / 64 + 1) <= most;
}

/// Queues the product. Up to 8 rows of A against a transposed B (a fully connected layer at small batch: the bytes of B
/// are the cost) go through our own kernel, which reads B once; everything else goes through cuBLAS, or through a plain
/// tiled kernel where cuBLAS could not be loaded. Any size may be 0. Same inputs, same bits.
void gemm(const Context& context, const GemmCall& call);

/// A copy of `values` on the current device, freed with the last owner; `.get()` is the device address (a float*).
std::shared_ptr<const void> upload_weights(std::span<const float> values);

}  // namespace lenslet::cuda
