#pragma once
// Constants of windows_cost() and ragged_us(), all by hand (docs/results/cuda-cost-model-cases-2026-11-27.csv): what
// filters of several taps cost wgmma_gemm and wgmma_tf32.

namespace lenslet::cuda {

/// Factors of a tile's time, relative to 1x1; the first is of 1x1 itself.
struct WindowCosts {
  double pointwise_128x96 = 0.92;     ///< 1x1 of 16 bits by 128x96 (20 problems)
  double thin_sets = 1.35;            ///< sets of groups without stride: 64 channels at most, or float32
  double sets = 1.05;                 ///< other such sets
  double narrow = 1.35;               ///< tiles of 32 filters
  double half_empty = 1.2;            ///< tiles of which half the filters are used at most
  double two_waves_192x64 = 1.12;     ///< two waves of 192x64
  double one_wave_128x128 = 1.07;     ///< one wave of 128x128
  double one_wave_of_64 = 1.25;       ///< one wave of 192x64 or 256x64
  double outside_us = 0.0125;         ///< us a byte: TMA boxes that reach past x
  double aligned_outside_us = 0.004;  ///< us a byte: the same where channels are aligned, persistent blocks
};
inline constexpr WindowCosts window_costs;

}  // namespace lenslet::cuda
