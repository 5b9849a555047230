#pragma once
// A stage of wgmma_gemm's kernels, and of wgmma_tf32's slices: what its copies bring, and the products of it. Its
// operands are those of a step, in groups of `width` channels of a tap: one group where rows are 128 bytes wide,
// otherwise several, one behind the other, so that a barrier is waited for once in 128 bytes of terms. A step always
// has all of them, zeros if need be: products in branches are serialized by the compiler.

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
/// and filters, `pointwise` and `terms`.
template <int m, int n, int width, int groups, int element_bytes = 2>
struct WgmmaStage {
  static constexpr int row_bytes = width * element_bytes;
  static constexpr int pixels_bytes = m * row_bytes, filters_bytes = n * row_bytes;  ///< of a group
  static_assert(groups * row_bytes <= 128);

  /// One thread: windows come to a stage whose filters are there.
  __device__ static void announce_windows(std::uint64_t* full) { arrive_expecting(full, groups * pixels_bytes); }
  /// One thread: announces what comes to the stage, and has the filters from first_k on come. `terms` goes on, by
  /// channels where a step is one group.
  template <bool by_channels = false, typename Call>
  __device__ static void bring_filters(const Call& g, unsigned char* to, std::uint64_t* full, int first_k,
                                       TermWalk& terms) {
    arrive_expecting(full, groups * (pixels_bytes + filters_bytes));
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const TermWalk at = groups == 1 ? terms : terms.or_zeros(g.terms);
      copy_tile(to + group * filters_bytes, g.filters, full, at.c, at.tap, first_k);
      terms.template next<by_channels>(g.terms, width);
    }
  }
  /// The same of windows, `start` that of the first pixel, their channels from first_c on.
  template <bool by_channels = false, typename Call>
  __device__ static void bring_windows(const Call& g, unsigned char* to, std::uint64_t* full, int first_pixel,
                                       const WindowStart& start, TermWalk& terms, int first_c = 0) {
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const TermWalk at = groups == 1 ? terms : terms.or_zeros(g.terms);
      unsigned char* const into = to + group * pixels_bytes;
      if (g.pointwise != 0)
        copy_tile(into, g.windows, full, first_c + at.c, first_pixel);
      else
        copy_windows(into, g.windows, full, first_c + at.c, start.w, start.h, start.n, at.tap_w, at.tap_h);
      terms.template next<by_channels>(g.terms, width);
    }
  }

  /// A warpgroup: its products of a step, of 64 * rows64 pixels from first_row on, as one group of products.
  template <typename T, int rows64>
  __device__ static void multiply(float (&d)[rows64][n / 2], const unsigned char* pixels, const unsigned char* filters,
                                  int first_row, bool add) {
    static_assert(sizeof(T) == element_bytes);
    constexpr int rows64_bytes = 64 * row_bytes, terms_bytes = wgmma_terms * 2;  // of one instruction, whatever T
    const std::uint64_t a = wgmma_operand<row_bytes>(pixels) + wgmma_behind(first_row * row_bytes);
    const std::uint64_t b = wgmma_operand<row_bytes>(filters);
    wgmma_fence();
#pragma unroll
    for (int group = 0; group < groups; ++group)
#pragma unroll
      for (int i = 0; i < row_bytes / terms_bytes; ++i)
#pragma unroll
        for (int row = 0; row < rows64; ++row)
          wgmma<T, n>(d[row], a + wgmma_behind(group * pixels_bytes + row * rows64_bytes + i * terms_bytes),
                      b + wgmma_behind(group * filters_bytes + i * terms_bytes), add || group > 0 || i > 0);
    wgmma_commit();
  }
};

#endif

}  // namespace lenslet::cuda
