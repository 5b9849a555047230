#pragma once
// Constants of mma_gemm's cost model, mma_gemm_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: all but l2_bytes_per_us, efficiency, lone_us.

#include <array>

namespace lenslet::cuda {

struct MmaGemmCosts {
  double block_us = 0;                 ///< us: prologue and epilogue of a block
  double tile_us = 1.97;               ///< us: the same for m + n = 128
  double l2_bytes_per_us = 8.8e6;      ///< bytes/us: L2 bandwidth of all multiprocessors together
  double cluster_us = 0.6;             ///< us: reduction in a cluster, waiting for each other
  double split_us = 0.019;             ///< us a split and block of a multiprocessor: the same
  double cluster_bytes_per_us = 14e6;  ///< bytes/us: reading partial sums
  double word_factor = 2.42;           ///< factor of a k-block's time: copies of 4 bytes
  double half_factor = 7.8;            ///< factor of a k-block's time: loads of 2 bytes
  double few_channels_factor = 1.45;   ///< factor (124 drawn problems, H100): each tap has its own address
  double unhidden = 0.61;              ///< share of the shorter of products and memory time that is not hidden
  double residual_factor = 1.65;       ///< factor of a residual's bytes: read after the main loop
  std::array<double, 7> efficiency{0.53, 0.50, 0.50, 0.42, 0.30, 0.30, 0.20};  ///< share of wgmma's rate, by MmaTile
  std::array<double, 7> lone_us{0.72, 0.53, 0.55, 0.30, 0.25, 0.21, 0.19};  ///< us: a lone block's k-block, by MmaTile
};
inline constexpr MmaGemmCosts mma_gemm_costs;

}  // namespace lenslet::cuda
