#pragma once
// Pixels normalised over their channels, for the kernels of wgmma_split_k without splits: the products are of x as it
// is, and the accumulators are brought to mean 0 and variance 1 afterwards (wgmma_preactivated.h). Four warps of their
// own take the pixels' moments from the k-blocks in shared memory, beside producer and consumers, whose main loop they
// would lengthen.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/warp.cuh"
#include "ops/conv/cuda/wgmma_split_k.cuh"

namespace lenslet::cuda {

inline constexpr int moments_threads = 128;
/// Shared memory behind a block's layout: mean and gain (float2) of its pixels, and the barrier that they are there.
constexpr int moments_bytes(SplitKTile tile) { return shape_of(tile).m * 8 + 8; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Moments of m pixels, of k-blocks of 64 channels. Two threads a pixel, each half of its 128 bytes; pixels 64 apart
/// are the same thread's. Moments are of distances to a pixel's first channel, in float32: those of x lose the variance
/// where the mean is large.
template <typename T, int m>
class PixelMoments {
  static constexpr int row_bytes = wgmma_step_bytes, row_chunks = row_bytes / 16, own_chunks = row_chunks / 2;
  static constexpr int pitch = moments_threads / 2, rows = m / pitch;
  static_assert(pitch % 8 == 0);  // so that a thread's pixels have the same swizzle

 public:
  __device__ PixelMoments(int thread, int channels)
      : chunks_(channels / 8),
        row_(thread / 2),
        half_(thread % 2),
        at_(row_ * row_bytes + ((half_ * own_chunks) ^ (row_ % 8)) * 16) {}

  /// Adds a k-block.
  __device__ void take(const unsigned char* pixels, int step) {
    if (step == 0)
#pragma unroll
      for (int r = 0; r < rows; ++r)
        first_[r] = widened(*reinterpret_cast<const T*>(row(pixels, r) + (at_ ^ half_ * own_chunks * 16)));
    const int left = chunks_ - step * row_chunks;
    if (left >= row_chunks)
      take<true>(pixels, left);
    else
      take<false>(pixels, left);
  }
  /// Writes means and gains. `scalars`: epsilon, 1 / C, factor of the gains.
  __device__ void write(float2* to, const float (&scalars)[3]) const {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums_[r][0] + sums_[r][1], squares = squares_[r][0] + squares_[r][1];
      sum += shuffle_xor(sum, 1);
      squares += shuffle_xor(squares, 1);
      const float distance = sum * scalars[1];
      float variance = fmaf(-distance, distance, squares * scalars[1]);
      if (variance < 0) variance = 0;  // NaN stays
      if (half_ == 0) to[row_ + r * pitch] = {first_[r] + distance, scalars[2] / sqrtf(variance + scalars[0])};
    }
  }

 private:
  __device__ static const unsigned char* row(const unsigned char* pixels, int r) {
    return pixels + r * pitch * row_bytes;
  }

  /// `whole`: all chunks hold channels. TMA's swizzle: chunk i of a row lies at i ^ (row % 8). Eight lanes have four
  /// rows and both halves, and so read all banks.
  template <bool whole>
  __device__ void take(const unsigned char* pixels, int left) {
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int i = 0; i < own_chunks; ++i) {
        if (!whole && half_ * own_chunks + i >= left) continue;
        const uint4 chunk = *reinterpret_cast<const uint4*>(row(pixels, r) + (at_ ^ i * 16));
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

  int chunks_;      // of a pixel's channels
  int row_, half_;  // the thread's first pixel, and which half
  int at_;          // offset of its first chunk
  float first_[rows], sums_[rows][2] = {}, squares_[rows][2] = {};
};

/// As PlainRows, of consumers of 64 pixels. The blob has the sums of filters behind the biases, then the scalars.
template <typename T, SplitKTile tile>
class NormalisedRows {
  static constexpr int m = shape_of(tile).m, n = shape_of(tile).n;
  static constexpr int rows = 2;  ///< of a thread's accumulators, 8 apart

  template <typename Block>
  __device__ static float2* moments(const Block& block) {
    return reinterpret_cast<float2*>(block.shared + Block::layout.total);
  }
  template <typename Block>
  __device__ static std::uint64_t* full(const Block& block) {
    return reinterpret_cast<std::uint64_t*>(moments(block) + m);
  }
  __device__ static const float* sums_of_filters(const WgmmaSplitK& g) { return g.bias + g.tiles_n * n; }

 public:
  static constexpr int warps = moments_threads / 32;

  template <typename Block>
  __device__ static void init_barriers(const Block& block) {
    static_assert(Block::layout.total % 8 == 0);
    init_mbarrier(full(block), moments_threads);
  }

  /// The threads that take the moments.
  template <typename Block>
  __device__ static void run(const WgmmaSplitK& g, const Block& block, int thread) {
    const float* const from = sums_of_filters(g) + g.tiles_n * n;  // of the blob, which no earlier kernel writes
    const float scalars[3] = {__ldg(from), __ldg(from + 1), __ldg(from + 2)};
    wait_for_previous();
    PixelMoments<T, m> pixels(thread, g.k_order.c);
    StageRing at;
    for (int step = 0; step < g.steps; ++step) {
      wait_parity(block.full(at.stage), at.phase);
      pixels.take(block.pixels(at.stage), step);
      __syncwarp();  // all lanes have read
      if (thread % 32 == 0) arrive(block.empty(at.stage));
      at.next(Block::layout.stages);
    }
    pixels.write(moments(block), scalars);
    arrive(full(block));
  }

  template <typename Block>
  __device__ NormalisedRows(const WgmmaSplitK& g, const Block& block, int first_row, int first_k) : full_(full(block)) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    own_ = moments(block) + first_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const float2* const sums = reinterpret_cast<const float2*>(sums_of_filters(g) + first_k) + lane % 4;
#pragma unroll
    for (int eight = 0; eight < n / 8; ++eight) sums_[eight] = __ldg(sums + eight * 4);
  }

  __device__ void finish(float (&d)[n / 2]) const {
    wait_parity(full_, 0);
    const float2 of_rows[rows] = {own_[0], own_[8]};
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      const float2& moments = of_rows[i / 2 % 2];
      const float sum = i % 2 == 0 ? sums_[i / 4].x : sums_[i / 4].y;
      d[i] = fmaf(-moments.x, sum, d[i]) * moments.y;
    }
  }

 private:
  std::uint64_t* full_;
  const float2* own_;   // the thread's pixels, 8 apart
  float2 sums_[n / 8];  // of its filters
};

#endif

/// A block has all channels of its pixels.
template <typename T, SplitKTile tile>
__global__ void __launch_bounds__(split_k_threads<tile> + moments_threads, shape_of(tile).blocks)
    wgmma_layer_norm_kernel(const __grid_constant__ WgmmaSplitK g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = SplitKBlock<T, tile, wgmma_step, 1, NormalisedRows<T, tile>>;
  const Block block{shared};
  run_split<T, 128 * split_k_consumers<tile>>(g, block, [&] {
    if (threadIdx.x >= split_k_threads<tile>)
      Block::Rows::run(g, block, static_cast<int>(threadIdx.x) - split_k_threads<tile>);
    else
      wait_for_previous();
  });
#endif
}

}  // namespace lenslet::cuda
