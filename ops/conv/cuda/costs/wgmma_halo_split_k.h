#pragma once
// Constants of the cost model of wgmma_halo with split-K, halo_split_k_us(). docs/cost-models.md has the rows and
// errors of the fit. By hand: efficiency_by_lines, split_k.

#include "ops/conv/cuda/costs/wgmma_split_k.h"

namespace lenslet::cuda {

struct HaloSplitKCosts {
  double efficiency_by_lines = 1.27;  ///< share of the device's rate for long gemm_k: stages of three taps
  double efficiency_by_taps = 0.81;   ///< the same: stages of one tap
  double crowd_us = 0.73;  ///< us: a wave on more than half of the multiprocessors, beside which nothing can start
  double float_us = 0.59;  ///< us: float32, whose accumulators are permuted in the epilogue
  SplitKCosts split_k{.block_us = 1.45,
                      .epilogue_us = 2.25,
                      .l2_bytes_per_us = 9.3e6,
                      .exchange_us = 0.17,
                      .exchange_bytes_per_us = 38.6e3,
                      .rows_per_us = 1150,
                      .unhidden = 0.42};
};
inline constexpr HaloSplitKCosts halo_split_k_costs;

}  // namespace lenslet::cuda
