#pragma once
// Rows of pixels normalised over their channels, for kernels of wgmma_gemm and wgmma_split_k: the products are of x as
// it is, and the accumulators are brought to mean 0 and variance 1 afterwards (wgmma_preactivated.h). A warp takes the
// moments of its 16 pixels from the k-blocks in shared memory while the tensor cores multiply these.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/warp.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_split_k.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// For a consumer of 64 pixels and k-blocks of 64 channels. Moments are of distances to a row's
/// first channel, in float32: those of x lose the variance where the mean is large. A thread has two rows of the
/// accumulators, as have the three beside it; each of the four takes a quarter of every row of shared memory.
template <typename T, auto tile>
class NormalisedRows {
  static constexpr int n = shape_of(tile).n;  ///< filters of a tile
  static constexpr int row_bytes = wgmma_step_bytes, row_chunks = row_bytes / 16, rows = 2;

 public:
  template <typename Call>
  __device__ NormalisedRows(const Call& g, int first_row)
      : weights_(g.bias + g.tiles_n * n),
        scalars_(weights_ + g.tiles_n * n),
        chunks_(g.k_order.c / 8),
        quad_(static_cast<int>(threadIdx.x) % 4),
        row_(first_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4) {}

  /// A k-block's pixels.
  __device__ void take(const unsigned char* pixels, int step) {
    const unsigned char* const own = pixels + row_ * row_bytes;
    if (step == 0)
#pragma unroll
      for (int r = 0; r < rows; ++r)
        first_[r] = widened(*reinterpret_cast<const T*>(own + r * 8 * row_bytes + row_ % 8 * 16));
    const int left = chunks_ - step * row_chunks;
    if (left >= row_chunks)
      take<true>(own, left);
    else
      take<false>(own, left);
    __syncwarp();  // before a lane releases the stage
  }

  /// The products of filters from first_k on.
  template <int rows64, int half_n>
  __device__ void finish(float (&d)[rows64][half_n], int first_k) {
    static_assert(rows64 == 1 && half_n == n / 2);
    const float epsilon = __ldg(scalars_), by = __ldg(scalars_ + 1);
    float mean[rows], gain[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums_[r][0] + sums_[r][1], squares = squares_[r][0] + squares_[r][1];
#pragma unroll
      for (int mask = 1; mask < 4; mask *= 2) {
        sum += shuffle_xor(sum, mask);
        squares += shuffle_xor(squares, mask);
      }
      const float distance = sum * by;
      float variance = fmaf(-distance, distance, squares * by);
      if (variance < 0) variance = 0;  // NaN stays
      mean[r] = first_[r] + distance;
      gain[r] = 1 / sqrtf(variance + epsilon);
    }
    const float2* const weights = reinterpret_cast<const float2*>(weights_ + first_k) + quad_;
#pragma unroll
    for (int eight = 0; eight < n / 8; ++eight) {
      const float2 w = __ldg(weights + eight * 4);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        float* const pair = d[0] + eight * 4 + r * 2;
        pair[0] = fmaf(-mean[r], w.x, pair[0]) * gain[r];
        pair[1] = fmaf(-mean[r], w.y, pair[1]) * gain[r];
      }
    }
  }

 private:
  /// `whole`: all chunks hold channels. TMA's swizzle: chunk i of a row lies at i ^ (row % 8); odd rows begin with
  /// their other half, so that eight lanes read all banks.
  template <bool whole>
  __device__ void take(const unsigned char* own, int left) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int place = quad_ + (i ^ row_ % 2) * 4;
      if (!whole && (place ^ row_ % 8) >= left) continue;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const uint4 chunk = *reinterpret_cast<const uint4*>(own + r * 8 * row_bytes + place * 16);
#pragma unroll
        for (const std::uint32_t word : {chunk.x, chunk.y, chunk.z, chunk.w}) {
          const float2 x = widened_pair<T>(word);
          const float a = x.x - first_[r], b = x.y - first_[r];
          sums_[r][0] += a;
          sums_[r][1] += b;
          squares_[r][0] = fmaf(a, a, squares_[r][0]);
          squares_[r][1] = fmaf(b, b, squares_[r][1]);
        }
      }
    }
  }

  const float* weights_;  // sums of filters
  const float* scalars_;  // epsilon, 1 / C
  int chunks_;            // of a pixel's channels
  int quad_, row_;
  float first_[rows] = {}, sums_[rows][2] = {}, squares_[rows][2] = {};
};

#endif

template <typename T, WgmmaTile tile>
__global__ void __launch_bounds__(wgmma_threads(shape_of(tile).consumers), 1)
    wgmma_layer_norm_kernel(const __grid_constant__ WgmmaGemm g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = WgmmaBlock<T, tile, wgmma_step, 1, false, NormalisedRows<T, tile>>;
  const Block block{shared};
  run_wgmma_block<T, false>(g, block, [&](StageRing& at, int first_row, int first_k, unsigned lane, auto& d) {
    multiply_tile<T>(g, block, at, first_row, first_k, lane, d);
  });
#endif
}

template <typename T, SplitKTile tile>
__global__ void __launch_bounds__(split_k_threads<tile>, shape_of(tile).blocks)
    wgmma_layer_norm_kernel(const __grid_constant__ WgmmaSplitK g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = SplitKBlock<T, tile, wgmma_step, 1, NormalisedRows<T, tile>>;
  run_split<T, 128 * split_k_consumers<tile>>(g, Block{shared});
#endif
}

}  // namespace lenslet::cuda
