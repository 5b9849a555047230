#pragma once
// Cost model of split-K over a thread-block cluster, shared by wgmma_gemm, wgmma_tf32 and wgmma_halo. Plain C++.

#include <algorithm>
#include <cstdint>

#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// The work of a configuration.
struct SplitKWork {
  SplitKTileShape tile;
  double efficiency = 0;  ///< rate of full multiprocessors, relative to large products
  int split_k = 1;
  std::int64_t tiles = 0, steps = 0;            ///< k-blocks of a tile, all splits
  double block_k = 0, rows = 0, row_bytes = 0;  ///< of a k-block: its gemm_k; rows that TMA loads for a block
  double ragged_us = 0;                         ///< of a tile, all splits (ragged_us())
  double flops_per_us = 0;                      ///< of the device, at efficiency 1
};

/// ConvProblem::bytes() plus padding channels (aligned_nhwc).
double padded_bytes(const ConvProblem& problem);
/// Extra time in us of a tile's window loads where the last channels of a tap do not fill a group of `width`: TMA boxes
/// that reach past x are slow. 0.8 us a tap where 64 bytes are outside; none for 1x1; remainders at 16 bytes cost
/// `persistent` blocks a third to a half of that, clusters nothing. Cases:
/// docs/results/cuda-cost-model-cases-2026-11-27.csv.
double ragged_us(const ConvProblem& problem, int width, bool persistent = false);
/// A tile's k-blocks that are tails (KTail); persistent blocks.
struct TailSteps {
  double count = 0, share = 1;  ///< relative to a whole k-block's products
  int width = 0;                ///< of the last channels' boxes

  TailSteps(const ConvProblem& problem, int width);
  /// Time in us, given a whole k-block's products and loads, plus `more_us` each.
  double us(double products_us, double copies_us, double more_us) const {
    return count * (std::max(share * products_us, copies_us) + more_us);
  }
};
/// Time in us, launch included.
double split_k_us(const ConvProblem& problem, const SplitKWork& work, const SplitKCosts& costs,
                  const DeviceProfile& device);

}  // namespace lenslet::cuda
