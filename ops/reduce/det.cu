#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/reduce/det_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int most_threads = 256;

/// A matrix per block, by elimination with the largest pivot of each column. Every warp searches all rows for the
/// pivot, which needs no shared memory.
__global__ void __launch_bounds__(most_threads) det_kernel(const float* x, float* y, double* scratch, std::int64_t n) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t thread = threadIdx.x, threads = blockDim.x, size = n * n;
  const float* const in = x + blockIdx.x * size;
  double* const a = scratch + blockIdx.x * size;
  for (std::int64_t i = thread; i < size; i += threads) a[i] = in[i];
  __syncthreads();
  double value = 1, not_finite = 0;  // not_finite: NaN where an element is NaN or infinite
  for (std::int64_t i = lane; i < size; i += warp_threads) not_finite += 0 * a[i];
  for (int mask = warp_threads / 2; mask > 0; mask /= 2) not_finite += shuffle_xor(not_finite, mask);

  for (std::int64_t k = 0; k < n; ++k) {
    double* const top = a + k * n;
    double most = -1;
    std::int64_t best = k;
    for (std::int64_t row = k + lane; row < n; row += warp_threads)
      if (const double size_of = fabs(a[row * n + k]); size_of > most) most = size_of, best = row;
    for (int mask = warp_threads / 2; mask > 0; mask /= 2) {
      const double other = shuffle_xor(most, mask);
      const std::int64_t other_row = shuffle_xor(best, mask);
      if (other > most || (other == most && other_row < best)) most = other, best = other_row;
    }
    if (most == 0) {  // in every thread alike
      value = 0;
      break;
    }
    __syncthreads();  // all warps have read column k
    if (best != k) {
      for (std::int64_t j = k + thread; j < n; j += threads) {
        const double upper = top[j];
        top[j] = a[best * n + j];
        a[best * n + j] = upper;
      }
      value = -value;
    }
    __syncthreads();
    value *= top[k];
    const std::int64_t left = n - k - 1;
    for (std::int64_t i = thread; i < left * left; i += threads) {
      const std::int64_t j = k + 1 + i % left;
      double* const row = top + (1 + i / left) * n;
      row[j] -= row[k] / top[k] * top[j];
    }
    __syncthreads();
  }
  if (thread == 0) y[blockIdx.x] = static_cast<float>(value + not_finite);
}

}  // namespace

void det(const Context& context, const float* x, float* y, double* scratch, std::int64_t count, std::int64_t n) {
  launch(context, det_kernel, dim3(blocks_for(count, 1)), dim3(n <= 16 ? warp_threads : most_threads), 0, x, y, scratch,
         n);
}

}  // namespace lenslet::cuda
