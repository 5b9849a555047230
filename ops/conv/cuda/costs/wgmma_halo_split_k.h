#pragma once
// Constants of the cost model of wgmma_halo with split-K, halo_split_k_us(); fitted to 262 configurations of 94
// problems in fp16 and TF32 (H100, 25 November 2026): rms error 6 %; the one taken is 0.4 % behind the best on average,
// 22 % at worst. docs/cost-models.md.

#include "ops/conv/cuda/costs/wgmma_split_k.h"

namespace lenslet::cuda {

struct HaloSplitKCosts {
  double efficiency_by_lines = 1.27;  ///< share of the device's rate for long gemm_k: stages of three taps
  double efficiency_by_taps = 0.94;   ///< the same: stages of one tap
  double crowd_us = 0.98;  ///< us: a wave on more than half of the multiprocessors, beside which nothing can start
  double float_us = 0.48;  ///< us: float32, whose accumulators are permuted in the epilogue
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
