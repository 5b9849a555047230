#pragma once
// Constants of wgmma_tf32's cost model, wgmma_tf32_us(), beside wgmma_gemm's efficiencies. docs/cost-models.md has the
// rows and errors of the fit. By hand: all but sustained.

#include <array>

#include "ops/conv/cuda/costs/wgmma_split_k.h"

namespace lenslet::cuda {

struct WgmmaTf32Costs {
  double start_us = 1.6;     ///< us: launch to first product: barriers, tensor maps, memory latency
  double epilogue_us = 1.4;  ///< us: 128x128 outputs, what the other consumer's products do not hide
  double unheld = 1.2;       ///< factor of the epilogue: large tiles, whose registers hold no biases in 16 bits
  double tail_us = 0.04;     ///< us (30 configurations of 4 problems, H100): a tail (KTail)
  double unhidden = 0.53;    ///< share of the shorter of products and memory time that is not hidden
  double sustained = 1.07;   ///< share of the device's rate: a long product
  double share = 1.01;       ///< factor of wgmma_gemm's efficiencies
  std::array<double, 4> split_k_share{0.85, 0.85, 1.19, 1.26};  ///< the same in cluster split-K, by SplitKTile
  SplitKCosts split_k{.block_us = 1.95,
                      .epilogue_us = 2.4,
                      .l2_bytes_per_us = 9.7e6,
                      .exchange_us = 0.23,
                      .exchange_bytes_per_us = 44e3,
                      .rows_per_us = 1150,
                      .unhidden = 0.41};
};
inline constexpr WgmmaTf32Costs wgmma_tf32_costs;

}  // namespace lenslet::cuda
