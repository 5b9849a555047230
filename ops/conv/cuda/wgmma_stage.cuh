#pragma once
// A stage of wgmma_gemm's and wgmma_tf32's kernels: what its copies bring, and the products of it. Its
// operands are those of a step, in groups of `width` channels of a tap: one group where rows are 128 bytes wide,
// otherwise several, one behind the other, so that a barrier is waited for once in 128 bytes of terms. A step always
// has all of them, zeros if need be: products in branches are serialized by the compiler, unless the fence before and
// the commit behind them are in the same branch. Persistent blocks may have tails (TermTail), in steps of their own.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Stages one after the other, and the phase of their barriers.
template <int stages>
struct StageWalk {
  int stage = 0;
  unsigned phase = 0;
  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

/// The same of a number that is known when the kernel runs.
struct StageRing {
  int stages;
  int stage = 0;
  unsigned phase = 0;
  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Of tiles of m pixels and n filters, elements of 2 bytes, or of 4 where products are TF32. A call has maps of windows
/// and filters, `pointwise` and `terms`; one of persistent blocks `tail`, too.
template <int m, int n, int width, int groups, int element_bytes = 2>
struct WgmmaStage {
  static constexpr int channels = width;
  static constexpr int row_bytes = width * element_bytes;
  static constexpr int pixels_bytes = m * row_bytes, filters_bytes = n * row_bytes;  ///< of a group
  static constexpr int terms_bytes = wgmma_terms * 2;                                ///< of an instruction, whatever T
  static_assert(groups * row_bytes <= 128);

  /// Bytes of a step's windows. `tails`: the call has some.
  template <bool tails, typename Call>
  __device__ static unsigned windows_bytes([[maybe_unused]] const Call& g, [[maybe_unused]] const TermWalk& terms) {
    if constexpr (tails)
      if (terms.c >= g.tail.first) return static_cast<unsigned>(g.tail.instructions(g.terms, width) * m * terms_bytes);
    return groups * pixels_bytes;
  }
  template <bool tails, typename Call>
  __device__ static const CUtensorMap& windows_map(const Call& g, [[maybe_unused]] const TermWalk& group) {
    if constexpr (tails)
      if (group.c >= g.tail.first) return g.residuals_or_tails;
    return g.windows;
  }

  /// One thread: windows come to a stage whose filters are there.
  template <bool tails, typename Call>
  __device__ static void announce_windows(const Call& g, std::uint64_t* full, const TermWalk& terms) {
    arrive_expecting(full, windows_bytes<tails>(g, terms));
  }
  /// One thread: announces what comes to the stage, and has the filters from first_k on come. `terms` goes on, by
  /// channels where a step is one group.
  template <bool by_channels = false, bool tails = false, typename Call>
  __device__ static void bring_filters(const Call& g, unsigned char* to, std::uint64_t* full, int first_k,
                                       TermWalk& terms) {
    arrive_expecting(full, windows_bytes<tails>(g, terms) + groups * filters_bytes);
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const TermWalk at = groups == 1 ? terms : terms.or_zeros(g.terms);
      copy_tile(to + group * filters_bytes, g.filters, full, at.c, at.tap, first_k);
      terms.template next<by_channels>(g.terms, width);
    }
  }
  /// The same of windows, `start` that of the first pixel, their channels from first_c on.
  template <bool by_channels = false, bool tails = false, typename Call>
  __device__ static void bring_windows(const Call& g, unsigned char* to, std::uint64_t* full, int first_pixel,
                                       const WindowStart& start, TermWalk& terms, int first_c = 0) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const TermWalk at = groups == 1 ? terms : terms.or_zeros(g.terms);
      unsigned char* const into = to + group * pixels_bytes;
      if (g.pointwise != 0)
        copy_tile(into, windows_map<tails>(g, at), full, first_c + at.c, first_pixel);
      else
        copy_windows(into, windows_map<tails>(g, at), full, first_c + at.c, start.w, start.h, start.n, at.tap_w,
                     at.tap_h);
      terms.template next<by_channels>(g.terms, width);
    }
  }

  /// A warpgroup: its products of a step, of 64 * rows64 pixels from first_row on, as one group of products. A
  /// tail's rows of pixels are shorter.
  template <typename T, int window_bytes = row_bytes, int rows64>
  __device__ static void multiply(float (&d)[rows64][n / 2], const unsigned char* pixels, const unsigned char* filters,
                                  int first_row, bool add) {
    static_assert(sizeof(T) == element_bytes);
    static_assert(window_bytes == row_bytes || groups == 1);
    constexpr int rows64_bytes = 64 * window_bytes;
    const std::uint64_t a = wgmma_operand<window_bytes>(pixels) + wgmma_behind(first_row * window_bytes);
    const std::uint64_t b = wgmma_operand<row_bytes>(filters);
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < groups; ++group)
#pragma unroll
      for (int i = 0; i < window_bytes / terms_bytes; ++i)
#pragma unroll
        for (int row = 0; row < rows64; ++row)
          wgmma<T, n>(d[row], a + wgmma_behind(group * pixels_bytes + row * rows64_bytes + i * terms_bytes),
                      b + wgmma_behind(group * filters_bytes + i * terms_bytes), add || group > 0 || i > 0);
    wgmma_commit();
  }
};

/// A warpgroup of a persistent block: its products of a tile, of the pixels from first_row on, whose stages come from
/// `at` on. A lane of each warp says when a stage was read. The call has `steps` and, if the block may have tails, what
/// tells of them.
template <typename T, typename Block, typename Call, typename Walk, int rows64, int half_n>
__device__ inline void multiply_tile(const Call& g, const Block& block, Walk& at, int first_row, unsigned lane,
                                     float (&d)[rows64][half_n]) {
  using Stage = typename Block::Stage;
  const auto release = [&](int stage) {
    if (lane == 0) arrive(block.empty(stage));
  };
  int last = 0;  // the stage that products under way read
  const auto multiply = [&]<int window_bytes>(int steps, bool begun) {
    for (int step = 0; step < steps; ++step) {
      const bool add = begun || step > 0;
      wait_for_phase(block.full(at.stage), at.phase);
      Stage::template multiply<T, window_bytes>(d, block.pixels(at.stage), block.filters(at.stage), first_row, add);
      // The step before this one is done: its stage is free, as far as this warp is concerned.
      wgmma_wait<1>();
      if (add) release(last);
      last = at.stage;
      at.next();
    }
  };
  bool whole = true;
  if constexpr (Block::may_have_tails) {
    whole = !g.tail.exists();
    if (!whole) {
      const TailOrder order(g.terms, g.tail, Stage::channels, g.by_channels != 0);
      for (int time = 0; time < order.times; ++time) {
        multiply.template operator()<Stage::row_bytes>(order.whole, time > 0);
        const bool begun = time > 0 || order.whole > 0;
        if (g.tail.instructions(g.terms, Stage::channels) == 1)
          multiply.template operator()<Stage::terms_bytes>(order.tails, begun);
        else
          multiply.template operator()<2 * Stage::terms_bytes>(order.tails, begun);
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
