#pragma once
// Rows of pixels normalised over their channels, for kernels of wgmma_gemm and wgmma_split_k: the products are of x as
// it is, and the accumulators are brought to mean 0 and variance 1 afterwards (wgmma_preactivated.h). A warpgroup of
// its own takes the pixels' moments from the k-blocks in shared memory, beside producer and consumers: in the
// consumers' main loop they would lengthen each k-block by 150 to 300 cycles (64x64: 10 us for 8; 128x128: 45 for 30).

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/warp.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_split_k.cuh"

namespace lenslet::cuda {

/// Kernel arguments of persistent blocks. The compiler knows that there is no residual, which spares registers.
struct WgmmaLayerNorm : WgmmaGemm {
  static constexpr int adds_residual = 0;
};

/// Warps that take moments: a warpgroup, but for large n two or three warps of the producer's. Four warpgroups have 128
/// registers a thread at launch, and products of n = 256 need 154; with five, the epilogue of 192x128 spills. Products
/// of large n take so long that fewer warps keep up.
constexpr int moments_warps(WgmmaTile tile) {
  return tile == WgmmaTile::t128x256 ? 2 : tile == WgmmaTile::t192x128 ? 3 : 4;
}
constexpr int moments_warps(SplitKTile) { return 4; }

/// Shared memory behind a block's layout: buffers for mean and gain (float2) of a tile's pixels, then barriers: of each
/// buffer that it is full, then of each that all consumers have read it.
struct MomentsShared {
  int buffers = 0;
  int barriers = 0;  ///< offset
  int total = 0;
};
constexpr MomentsShared moments_in(int m, int buffers) {
  const int bytes = buffers * m * 8;
  return {buffers, bytes, bytes + 2 * buffers * 8};
}
/// Whether that many blocks of these bytes fit on a multiprocessor: it has 228 KiB, and each block costs 1 more.
constexpr bool fits(int blocks, int bytes) { return blocks * (bytes + 1024) <= 228 << 10; }
/// Two buffers where they fit, so that consumers may be a tile apart.
constexpr MomentsShared moments_of(WgmmaTile tile) {
  const WgmmaTileShape& shape = shape_of(tile);
  const MomentsShared two = moments_in(shape.m, 2);
  return fits(1, shared_of(shape, false).total + two.total) ? two : moments_in(shape.m, 1);
}
/// Blocks of split-K have one tile.
constexpr MomentsShared moments_of(SplitKTile tile) { return moments_in(shape_of(tile).m, 1); }
constexpr bool moments_fit(WgmmaTile tile) {
  return fits(1, shared_of(shape_of(tile), false).total + moments_of(tile).total);
}
constexpr bool moments_fit(SplitKTile tile) {
  return fits(shape_of(tile).blocks, shared_of(shape_of(tile)).total + moments_of(tile).total);
}

template <typename Tile>
constexpr WgmmaExtras moments_extras(Tile tile) {
  return {moments_warps(tile) == 4 ? 128 : 0, moments_of(tile).total};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The moments of a tile's pixels, of k-blocks of 64 channels. Two threads a pixel, each half of its 128 bytes; pixels
/// threads / 2 apart are the same thread's. Moments are of distances to a pixel's first channel, in float32: those of x
/// lose the variance where the mean is large.
template <typename T, int m, int threads>
class PixelMoments {
  static constexpr int row_bytes = wgmma_step_bytes, row_chunks = row_bytes / 16, own_chunks = row_chunks / 2;
  static constexpr int pitch = threads / 2, rows = m / pitch;
  static_assert(pitch % 8 == 0);  // so that a thread's pixels have the same swizzle

 public:
  __device__ PixelMoments(int thread, int channels)
      : chunks_(channels / 8),
        row_(thread / 2),
        half_(thread % 2),
        at_(row_ * row_bytes + ((half_ * own_chunks) ^ (row_ % 8)) * 16) {}

  /// Begins a tile with its first k-block.
  __device__ void begin(const unsigned char* pixels) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      first_[r] = widened(*reinterpret_cast<const T*>(row(pixels, r) + (at_ ^ half_ * own_chunks * 16)));
      sums_[r][0] = sums_[r][1] = squares_[r][0] = squares_[r][1] = 0;
    }
  }
  /// Adds a k-block.
  __device__ void take(const unsigned char* pixels, int step) {
    const int left = chunks_ - step * row_chunks;
    if (left >= row_chunks)
      take<true>(pixels, left);
    else
      take<false>(pixels, left);
  }
  /// Writes the tile's means and gains. `scalars`: epsilon, 1 / C; not kept, as registers are few.
  __device__ void write(float2* to, const float* scalars) const {
    const float epsilon = __ldg(scalars), by = __ldg(scalars + 1);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float sum = sums_[r][0] + sums_[r][1], squares = squares_[r][0] + squares_[r][1];
      sum += shuffle_xor(sum, 1);
      squares += shuffle_xor(squares, 1);
      const float distance = sum * by;
      float variance = fmaf(-distance, distance, squares * by);
      if (variance < 0) variance = 0;  // NaN stays
      if (half_ == 0) to[row_ + r * pitch] = {first_[r] + distance, 1 / sqrtf(variance + epsilon)};
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
  float first_[rows], sums_[rows][2], squares_[rows][2];
};

/// As PlainRows, of consumers of 64 pixels. The blob has the sums of filters behind the biases, then epsilon and 1 / C.
template <typename T, auto tile>
class NormalisedRows {
  static constexpr int m = shape_of(tile).m, n = shape_of(tile).n;
  static constexpr MomentsShared layout = moments_of(tile);
  static_assert(moments_fit(tile));
  static constexpr int rows = 2;  ///< of a thread's accumulators, 8 apart

  /// A block's buffers and barriers.
  struct Shared {
    unsigned char* at;
    template <typename Block>
    __device__ explicit Shared(const Block& block) : at(block.shared + Block::layout.total) {
      static_assert(Block::layout.total % 8 == 0);
    }
    __device__ float2* moments(int buffer) const { return reinterpret_cast<float2*>(at) + buffer * m; }
    __device__ std::uint64_t* full(int buffer) const {
      return reinterpret_cast<std::uint64_t*>(at + layout.barriers) + buffer;
    }
    __device__ std::uint64_t* empty(int buffer) const { return full(buffer) + layout.buffers; }
  };
  /// Of a block's tiles in turn.
  __device__ static int buffer_of(int tile_index) { return tile_index % layout.buffers; }
  __device__ static unsigned phase_of(int tile_index) { return static_cast<unsigned>(tile_index) / layout.buffers & 1; }
  template <typename Call>
  __device__ static const float* sums_of_filters(const Call& g) {
    return g.bias + g.tiles_n * n;
  }

 public:
  static constexpr int warps = moments_warps(tile);

  template <typename Block>
  __device__ static void init_barriers(const Block& block) {
    const Shared shared(block);
    for (int buffer = 0; buffer < layout.buffers; ++buffer) {
      init_mbarrier(shared.full(buffer), warps);
      init_mbarrier(shared.empty(buffer), m / 16);
    }
  }

  /// The warps that take the moments of this many tiles, from `first_thread` on; the block's ring has `stages`. They
  /// follow the ring, not the consumers, and have released a tile's stages before they wait for the buffer.
  template <typename Call, typename Block>
  __device__ static void run(const Call& g, const Block& block, int first_thread, int tiles, int stages) {
    wait_for_previous();
    const Shared shared(block);
    PixelMoments<T, m, warps * 32> moments(static_cast<int>(threadIdx.x) - first_thread, g.k_order.c);
    StageRing at;
    for (int tile_index = 0; tile_index < tiles; ++tile_index) {
      for (int step = 0; step < g.steps; ++step) {
        wait_parity(block.full(at.stage), at.phase);
        const unsigned char* const pixels = block.pixels(at.stage);
        if (step == 0) moments.begin(pixels);
        moments.take(pixels, step);
        __syncwarp();  // all lanes have read
        if (threadIdx.x % 32 == 0) arrive(block.empty(at.stage));
        at.next(stages);
      }
      const int buffer = buffer_of(tile_index);
      wait_parity(shared.empty(buffer), phase_of(tile_index) ^ 1);  // all are empty at first
      moments.write(shared.moments(buffer), sums_of_filters(g) + g.tiles_n * n);
      __syncwarp();  // all lanes have written
      if (threadIdx.x % 32 == 0) arrive(shared.full(buffer));
    }
  }

  template <typename Block>
  __device__ NormalisedRows(const Block& block, int first_row) : shared_(block), first_row_(first_row) {}

  template <typename Call>
  __device__ void finish(const Call& g, float (&d)[1][n / 2], int first_k) {
    const int buffer = buffer_of(tile_), lane = static_cast<int>(threadIdx.x) % 32;
    wait_parity(shared_.full(buffer), phase_of(tile_));
    ++tile_;
    const int row = first_row_ + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
    const float2* const own = shared_.moments(buffer) + row;
    const float2 moments[rows] = {own[0], own[8]};
    __syncwarp();  // all lanes have read
    if (lane == 0) arrive(shared_.empty(buffer));
    const float2* const sums = reinterpret_cast<const float2*>(sums_of_filters(g) + first_k) + lane % 4;
#pragma unroll
    for (int eight = 0; eight < n / 8; ++eight) {
      const float2 sum = __ldg(sums + eight * 4);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        float* const pair = d[0] + eight * 4 + r * 2;
        pair[0] = fmaf(-moments[r].x, sum.x, pair[0]) * moments[r].y;
        pair[1] = fmaf(-moments[r].x, sum.y, pair[1]) * moments[r].y;
      }
    }
  }

 private:
  Shared shared_;
  int first_row_;  // the warpgroup's
  int tile_ = 0;   // of the block
};

#endif

template <typename T, WgmmaTile tile>
__global__ void __launch_bounds__(wgmma_threads(shape_of(tile).consumers) + moments_extras(tile).threads, 1)
    wgmma_layer_norm_kernel(const __grid_constant__ WgmmaLayerNorm g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = WgmmaBlock<T, tile, wgmma_step, 1, false, NormalisedRows<T, tile>>;
  const Block block{shared};
  run_wgmma_block<T, false>(g, block, [&](StageRing& at, int first_row, unsigned lane, auto& d) {
    multiply_tile<T>(g, block, at, first_row, lane, d);
  });
#endif
}

/// Without splits: a block has all channels of its pixels.
template <typename T, SplitKTile tile>
__global__ void __launch_bounds__(split_k_threads<tile> + moments_extras(tile).threads, shape_of(tile).blocks)
    wgmma_layer_norm_kernel(const __grid_constant__ WgmmaSplitK g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = SplitKBlock<T, tile, wgmma_step, 1, NormalisedRows<T, tile>>;
  const Block block{shared};
  run_split<T, 128 * split_k_consumers<tile>>(
      g, block, [&] { Block::Rows::run(g, block, split_k_threads<tile>, 1, Block::layout.stages); });
#endif
}

}  // namespace lenslet::cuda
