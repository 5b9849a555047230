#pragma once
// Constants of wgmma_gemm's cost model, wgmma_plan_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: all but sustained, split_k_efficiency.

#include <array>

#include "ops/conv/cuda/costs/wgmma_split_k.h"

namespace lenslet::cuda {

struct WgmmaGemmCosts {
  double start_us = 1.15;            ///< us: launch to first product: barriers, tensor maps, memory latency
  double epilogue_us = 1.22;         ///< us: 128x128 outputs, what the other consumer's products do not hide
  double narrow_epilogue_us = 1.65;  ///< us: the same in boxes of 32 filters
  double unheld = 1.2;               ///< factor of the epilogue: registers do not hold biases
  double crowded = 1.5;              ///< factor of the epilogue: a residual and only two slots a warp
  double activation_us = 1.45;       ///< us: 128x128 GELUs by two consumers (18 configurations of 3 problems)
  double shallow = 1.35;    ///< factor of long products (6 configurations of 1): a residual leaves three stages
  double sets_us = 0.1;     ///< us (1x192x35x35 -> 192, 1x1 in 6 groups): several sets of groups
  double tail_us = 0.1;     ///< us (60 configurations of 9 problems, H100): a tail (KTail)
  double unhidden = 0.42;   ///< share of the shorter of products and memory time that is not hidden
  double sustained = 1.02;  ///< share of the device's rate: a long product
  /// Share of the device's rate, by WgmmaTile. Above 1: large products are power-limited, short ones are not; narrow
  /// tiles read more shared memory and L2 a product.
  std::array<double, 11> efficiency{1.37, 1.37, 1.34, 1.37, 1.25, 1.12, 1.00, 1.05, 0.90, 0.79, 0.60};
  /// The same of full multiprocessors in cluster split-K, by SplitKTile.
  std::array<double, 4> split_k_efficiency{1.08, 0.83, 0.52, 0.32};
  SplitKCosts split_k{.block_us = 1.59,
                      .epilogue_us = 1.47,
                      .l2_bytes_per_us = 9e6,
                      .exchange_us = 0.23,
                      .exchange_bytes_per_us = 46e3,
                      .rows_per_us = 1150,
                      .unhidden = 0.42};
};
inline constexpr WgmmaGemmCosts wgmma_gemm_costs;

}  // namespace lenslet::cuda
