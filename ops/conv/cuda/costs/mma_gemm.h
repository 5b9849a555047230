#pragma once
// Constants of mma_gemm's cost model, mma_gemm_us(); fitted to 2736 configurations in fp16 and TF32 (H200, 24 November
// 2026): rms error 12 %; on 809 others 10 %, and the configuration taken is 3.6 % behind the best on average, 28 % at
// worst. docs/cost-models.md.

#include <array>

namespace lenslet::cuda {

struct MmaGemmCosts {
  double block_us = 0;                 ///< us: prologue and epilogue of a block
  double tile_us = 1.97;               ///< us: the same for m + n = 128
  double l2_bytes_per_us = 7.8e6;      ///< bytes/us: L2 bandwidth of all multiprocessors together
  double cluster_us = 0.6;             ///< us: reduction in a cluster, waiting for each other
  double split_us = 0.019;             ///< us a split and block of a multiprocessor: the same
  double cluster_bytes_per_us = 14e6;  ///< bytes/us: reading partial sums
  double word_factor = 2.42;           ///< factor of a k-block's time: copies of 4 bytes
  double half_factor = 7.8;            ///< factor of a k-block's time: loads of 2 bytes
  double few_channels_factor = 1.45;   ///< factor, by hand (124 drawn problems, H100): each tap has its own address
  double unhidden = 0.61;              ///< share of the shorter of products and memory time that is not hidden
  double residual_factor = 1.65;       ///< factor of a residual's bytes, by hand: read after the main loop
  std::array<double, 7> efficiency{0.48, 0.50, 0.50, 0.42, 0.30, 0.30, 0.20};  ///< share of wgmma's rate, by MmaTile
  std::array<double, 7> lone_us{0.79, 0.64, 0.65, 0.37, 0.29, 0.25, 0.22};  ///< us: a lone block's k-block, by MmaTile
};
inline constexpr MmaGemmCosts mma_gemm_costs;

}  // namespace lenslet::cuda
