#pragma once
// The way out of wgmma_gemm: bias, residual and activation in the registers that hold sums; then a warp lays 16 pixels
// of 64 or 32 filters, a part, into shared memory in 16 bits, and the copy engine stores it. The residual comes by the
// copy engine into the buffers that its results will leave by. Warps wait for nobody but the engine: while parts leave
// and come, they multiply the next tile.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/launch.h"
#include "base/cuda/tensor_copy.cuh"
#include "ops/conv/cuda/half_mma.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// One thread, with the block's other barriers.
template <typename Block>
__device__ inline void init_residual_barriers(const Block& block) {
  for (int i = 0; i < wgmma_consumers * 4 * Block::buffers; ++i) init_barrier(block.residuals(0) + i, 1);
}

/// Where a part lies in [pixels][K]: 16 pixels, one after the other.
struct PixelPlace {
  int pixel;
  /// So many times 64 rows of sums further.
  template <typename Call>
  __device__ PixelPlace behind(const Call&, int rows64) const {
    return {pixel + rows64 * 64};
  }
  template <typename Call>
  __device__ bool exists(const Call& g) const {
    return pixel < g.pixels;
  }
  template <typename Call>
  __device__ void load(const Call& g, void* to, std::uint64_t* barrier, int k) const {
    copy_tile(to, g.residuals, barrier, k, pixel);
  }
  template <typename Call>
  __device__ void store(const Call& g, const void* from, int k) const {
    store_tile(g.results, from, k, pixel);
  }
};

/// One thread, ahead of the consumers: a tile's residual comes to L2.
template <typename Block, typename Call>
__device__ inline void prefetch_residual(const Call& g, int first_pixel, int first_k) {
  for (int row = 0; row < Block::shape.m && first_pixel + row < g.pixels; row += staged_rows)
    for (int k = 0; k < Block::shape.n && first_k + k < g.k; k += staged_filters(Block::shape.n))
      prefetch_tile(g.residuals, first_k + k, first_pixel + row);
}

/// What a consumer warp does with its sums. Of its parts of a tile those of the same pixels follow each other. Each
/// takes the next of the warp's buffers and is a group of the first lane's stores, also where it lies outside of y.
template <typename T, typename Block, typename Call, typename Place = PixelPlace>
class Finisher {
  static constexpr int n = Block::shape.n, rows64 = Block::shape.m / 64 / wgmma_consumers;
  static constexpr int filters = staged_filters(n);  // of a part
  static constexpr int parts_n = n / filters, parts = rows64 * parts_n;
  static constexpr int sums = filters / 2;  // of a part, a thread's
  static constexpr int buffers = Block::buffers;
  /// So many parts ahead a residual is under way, into all buffers but that of the part which left last.
  static constexpr int ahead = buffers - 1;

 public:
  /// After wait_for_previous().
  __device__ Finisher(const Call& g, const Block& block, int warp)
      : g_(g),
        staging_(block.staging(warp)),
        barriers_(block.residuals(warp)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        clamp_(g.activation.clamp().low, g.activation.clamp().high) {
    if (lane_ == 0) {
      prefetch_map(g.results);
      if (g.adds_residual != 0) order_copies_after_stores();
    }
    __syncwarp();
  }

  /// The tile's sums begin here for this warp. Its first residuals are on their way while it multiplies.
  __device__ void begin(const Place& first, int first_k) {
    first_ = first;
    first_k_ = first_k;
    if (g_.adds_residual == 0) return;
    if (lane_ == 0)
      for (int part = 0; part < ahead; ++part) load_residual(part);
    __syncwarp();
  }

  /// All sums are there.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    // A loop, and most of its body once, for the sake of the code's size.
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      if (exists(part)) finish_part(part, d);
      if (lane_ == 0) {
        commit_stores();
        if (g_.adds_residual != 0) load_residual(part + ahead);
      }
      __syncwarp();
    }
    turn_ += parts;
  }

  /// After the last tile: shared memory may go.
  __device__ void end() const {
    if (lane_ == 0) wait_for_stores();
    __syncwarp();
  }

 private:
  __device__ Place place(int part) const { return first_.behind(g_, part / parts_n); }
  __device__ int filter(int part) const { return first_k_ + part % parts_n * filters; }
  __device__ bool exists(int part) const { return part < parts && filter(part) < g_.k && place(part).exists(g_); }
  __device__ int buffer(int part) const { return static_cast<int>((turn_ + static_cast<unsigned>(part)) % buffers); }

  /// By the first lane, when the part `ahead` of it, or an earlier one of another tile, was committed last.
  __device__ void load_residual(int part) const {
    if (!exists(part)) return;
    wait_until_read<1>();  // what left from the buffer before
    const int at = buffer(part);
    arrive_expecting(barriers_ + at, staged_rows * filters * 2);
    place(part).load(g_, staging_ + at * staged_bytes, barriers_ + at, filter(part));
  }

  /// Of the eights of filters that the thread has two of each.
  __device__ void load_bias(int part, float2 (&bias)[filters / 8]) const {
    const int first = filter(part) + lane_ % 4 * 2;
#pragma unroll
    for (int eight = 0; eight < filters / 8; ++eight) {
      const int k = first + eight * 8;
      bias[eight] = {};
      if (g_.bias != nullptr && k < g_.k) bias[eight] = *reinterpret_cast<const float2*>(g_.bias + k);
    }
  }

  __device__ void finish_part(int part, const float (&d)[rows64][n / 2]) {
    const int at = buffer(part);
    unsigned char* const staged = staging_ + at * staged_bytes;
    // Of a pair of eights, as matrices go: rows 0-7 and 8-15 of the first, then of the second.
    const auto row = [&](int pair) { return staged + staged_offset(lane_ % 16, pair * 2 + lane_ / 16, filters); };

    float2 bias[filters / 8];
    load_bias(part, bias);
    float v[sums];
#pragma unroll
    for (int known = 0; known < parts; ++known)  // registers are indexed by what is known here
      if (part == known) {
#pragma unroll
        for (int i = 0; i < sums; ++i)
          v[i] = d[known / parts_n][known % parts_n * sums + i] + (i % 2 == 0 ? bias[i / 4].x : bias[i / 4].y);
      }

    if (g_.adds_residual != 0) {
      wait_for_phase(barriers_ + at, phases_ >> at & 1);
      phases_ ^= 1U << at;
      __syncwarp();
#pragma unroll
      for (int pair = 0; pair < filters / 16; ++pair) {
        std::uint32_t words[4];
        load_matrices(words, row(pair));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 residual = widened_pair<T>(words[i]);
          v[pair * 8 + i * 2] += residual.x;
          v[pair * 8 + i * 2 + 1] += residual.y;
        }
      }
    } else if (lane_ == 0) {
      wait_until_read<buffers - 1>();
    }
    __syncwarp();

    if (!g_.activation.is_clamp()) g_.activation.apply_for_halves(v);
#pragma unroll
    for (int pair = 0; pair < filters / 16; ++pair) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = clamp_(narrowed_pair<T>(v[pair * 8 + i * 2], v[pair * 8 + i * 2 + 1]));
      store_matrices(row(pair), words);
    }
    order_copies_after_shared_stores();
    __syncwarp();
    if (lane_ == 0) place(part).store(g_, staged, filter(part));
  }

  const Call& g_;
  unsigned char* staging_;
  std::uint64_t* barriers_;  // a buffer each
  int lane_;
  PairClamp<T> clamp_;
  Place first_{};
  int first_k_ = 0;
  unsigned turn_ = 0;    // parts before this tile
  unsigned phases_ = 0;  // of barriers_, one bit each
};

#endif

}  // namespace lenslet::cuda
