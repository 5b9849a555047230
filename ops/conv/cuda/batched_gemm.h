#pragma once
// Batched products of small fp32 matrices in one launch, for Winograd. Plain C++: planned and tested without CUDA.

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet::cuda {

/// product[i] = a[i] * b[i] for i < batches, all row-major and packed: a [m][k], b [k][n], product [m][n], each in its
/// array of `batches` matrices. IEEE fp32, sums over k in order. n is a multiple of 4, k of gemm_step; arrays are
/// aligned to 16 bytes; one matrix has fewer than 2^31 elements.
struct BatchedGemm {
  const float* a = nullptr;
  const float* b = nullptr;
  float* product = nullptr;
  int m = 0, n = 0, k = 0, batches = 0;
};

/// Arithmetic time in us with that tile, without the launch and without memory traffic beyond L2.
double batched_gemm_us(const BatchedGemm& gemm, GemmTile tile, const DeviceProfile& device);

/// The tile with the least batched_gemm_us(). Every tile gives the same bits.
GemmTile choose_batched_gemm_tile(const BatchedGemm& gemm, const DeviceProfile& device);

/// Queues the product on the context's stream. batched_gemm.cu.
void batched_gemm(const Context& context, const BatchedGemm& gemm, GemmTile tile);

}  // namespace lenslet::cuda
