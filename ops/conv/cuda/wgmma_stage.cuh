#pragma once
// A pipeline stage of wgmma_gemm's and wgmma_tf32's kernels: its TMA loads and its products. A stage holds a k-block,
// in groups of `width` channels of a tap: one group of 128-byte rows, or several narrower ones, so that there is one
// barrier per 128 bytes of K. It is always full, zero-padded if need be: the compiler serialises products in branches
// unless fence and commit are in the same branch. Persistent blocks may have tails (KTail) as k-blocks of their own.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Walks a ring of stages and the parity of their barriers.
struct StageRing {
  int stage = 0;
  unsigned phase = 0;
  __device__ void next(int stages) {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// For tiles of m pixels by n filters. A call has maps of windows and filters, `pointwise` and `k_order`; with
/// persistent blocks `tail`, too.
template <int m, int n, int width, int k_groups, int element_bytes>
struct WgmmaStage {
  static constexpr int channels = width;
  static constexpr int row_bytes = width * element_bytes;
  static constexpr int pixels_bytes = m * row_bytes, filters_bytes = n * row_bytes;  ///< of a group
  static_assert(k_groups * row_bytes <= wgmma_step_bytes);

  /// Bytes of a k-block's windows. `tails`: the call has some.
  template <bool tails, typename Call>
  __device__ static unsigned windows_bytes([[maybe_unused]] const Call& g, [[maybe_unused]] const KWalk& k_walk) {
    if constexpr (tails)
      if (k_walk.c >= g.tail.first)
        return static_cast<unsigned>(g.tail.instructions(g.k_order, width) * m * wgmma_k_bytes);
    return k_groups * pixels_bytes;
  }
  template <bool tails, typename Call>
  __device__ static const CUtensorMap& windows_map(const Call& g, [[maybe_unused]] const KWalk& group) {
    if constexpr (tails)
      if (group.c >= g.tail.first) return g.residuals_or_tails;
    return g.windows;
  }

  /// One thread: loads windows into a stage that has its filters.
  template <bool tails, typename Call>
  __device__ static void expect_windows(const Call& g, std::uint64_t* full, const KWalk& k_walk) {
    arrive_expect_tx(full, windows_bytes<tails>(g, k_walk));
  }
  /// One thread: sets the stage's expected bytes and loads its filters from first_k on. Advances `k_walk`, by channels
  /// where a k-block is one group.
  template <bool by_channels = false, bool tails = false, typename Call>
  __device__ static void load_filters(const Call& g, unsigned char* to, std::uint64_t* full, int first_k,
                                      KWalk& k_walk) {
    arrive_expect_tx(full, windows_bytes<tails>(g, k_walk) + k_groups * filters_bytes);
#pragma unroll
    for (int group = 0; group < k_groups; ++group) {
      const KWalk at = k_groups == 1 ? k_walk : k_walk.or_zeros(g.k_order);
      tma_load(to + group * filters_bytes, g.filters, full, at.c, at.tap, first_k);
      k_walk.template next<by_channels>(g.k_order, width);
    }
  }
  /// Loads the windows, `start` being the first pixel's, channels from first_c on.
  template <bool by_channels = false, bool tails = false, typename Call>
  __device__ static void load_windows(const Call& g, unsigned char* to, std::uint64_t* full, int first_pixel,
                                      const WindowStart& start, KWalk& k_walk, int first_c = 0) {
#pragma unroll
    for (int group = 0; group < k_groups; ++group) {
      const KWalk at = k_groups == 1 ? k_walk : k_walk.or_zeros(g.k_order);
      unsigned char* const into = to + group * pixels_bytes;
      if (g.pointwise != 0)
        tma_load(into, windows_map<tails>(g, at), full, first_c + at.c, first_pixel);
      else
        tma_load_im2col(into, windows_map<tails>(g, at), full, first_c + at.c, start.w, start.h, start.n, at.tap_w,
                        at.tap_h);
      k_walk.template next<by_channels>(g.k_order, width);
    }
  }

  /// A warpgroup's products of a k-block: 64 * rows64 pixels from first_row on, as one wgmma group. Tails have shorter
  /// rows of pixels.
  template <typename T, int window_bytes = row_bytes, typename Accumulator, int rows64>
  __device__ static void multiply(Accumulator (&d)[rows64][n / 2], const unsigned char* pixels,
                                  const unsigned char* filters, int first_row, bool add) {
    static_assert(sizeof(T) == element_bytes);
    static_assert(window_bytes == row_bytes || k_groups == 1);
    constexpr int rows64_bytes = 64 * window_bytes;
    const std::uint64_t a = wgmma_operand<window_bytes>(pixels) + wgmma_behind(first_row * window_bytes);
    const std::uint64_t b = wgmma_operand<row_bytes>(filters);
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < k_groups; ++group)
#pragma unroll
      for (int i = 0; i < window_bytes / wgmma_k_bytes; ++i)
#pragma unroll
        for (int row = 0; row < rows64; ++row)
          wgmma<T, n>(d[row], a + wgmma_behind(group * pixels_bytes + row * rows64_bytes + i * wgmma_k_bytes),
                      b + wgmma_behind(group * filters_bytes + i * wgmma_k_bytes), add || group > 0 || i > 0);
    wgmma_commit();
  }
};

/// Main loop of a tile for a consumer warpgroup of a persistent block: pixels from first_row on, stages from `at` on. A
/// lane of each warp releases stages. The call has `steps` and, if the block may have tails, their description.
template <typename T, typename Block, typename Call, typename Accumulator, int rows64, int half_n>
__device__ inline void multiply_tile(const Call& g, const Block& block, StageRing& at, int first_row, unsigned lane,
                                     Accumulator (&d)[rows64][half_n]) {
  using Stage = typename Block::Stage;
  const auto release = [&](int stage) {
    if (lane == 0) arrive(block.empty(stage));
  };
  int last = 0;  // the stage that products in flight read
  const auto multiply = [&]<int window_bytes>(int steps, bool begun) {
    for (int step = 0; step < steps; ++step) {
      const bool add = begun || step > 0;
      wait_parity(block.full(at.stage), at.phase);
      Stage::template multiply<T, window_bytes>(d, block.pixels(at.stage), block.filters(at.stage), first_row, add);
      // The previous k-block is done: this warp has released its stage.
      wgmma_wait<1>();
      if (add) release(last);
      last = at.stage;
      at.next(Block::stages(g));
    }
  };
  bool whole = true;
  if constexpr (Block::may_have_tails) {
    whole = !g.tail.exists();
    if (!whole) {
      const TailOrder order(g.k_order, g.tail, Stage::channels, g.by_channels != 0);
      for (int time = 0; time < order.times; ++time) {
        multiply.template operator()<Stage::row_bytes>(order.whole, time > 0);
        const bool begun = time > 0 || order.whole > 0;
        if (g.tail.instructions(g.k_order, Stage::channels) == 1)
          multiply.template operator()<wgmma_k_bytes>(order.tails, begun);
        else
          multiply.template operator()<2 * wgmma_k_bytes>(order.tails, begun);
      }
    }
  }
  if (whole) multiply.template operator()<Stage::row_bytes>(g.steps, false);
  wgmma_wait<0>();
  release(last);
#pragma unroll
  for (int row = 0; row < rows64; ++row) wgmma_hold(d[row]);
}

#endif

}  // namespace lenslet::cuda
