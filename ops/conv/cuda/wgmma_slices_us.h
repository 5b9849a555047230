#pragma once
// What clusters that share a tile's steps take: the model that wgmma_gemm, wgmma_tf32 and wgmma_patch have in common.
// Plain C++.

#include <algorithm>
#include <cstdint>

#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Constants, fitted by tools/scripts/refit_tensor_cores.py.
struct SlicesCosts {
  /// Every round of blocks: barriers, the way to its first operands, until the next blocks come.
  double block_us = 0;
  double epilogue_us = 0;  ///< 128x128 outputs that one block sends out
  /// What all multiprocessors together get from L2.
  double l2_bytes_per_us = 0;
  /// The blocks of a cluster wait for each other, then have sent their sums, of 4 bytes, to each other.
  double exchange_us = 0, exchange_bytes_per_us = 0;
  double rows_per_us = 0;  ///< that the copy engine of a multiprocessor brings, however narrow
  /// Of products beside what memory takes, or the other way round: what the longer one does not hide.
  double unhidden = 0;
};

/// What is timed.
struct SlicesWork {
  SlicesTileShape tile;
  int slices = 1;
  std::int64_t tiles = 0, steps = 0;          ///< of a tile, all slices
  double terms = 0, rows = 0, row_bytes = 0;  ///< of a step: terms of an output; rows that come to a block
  double ragged_us = 0;                       ///< of a tile, all slices: copies of what lies partly outside
  double flops_per_us = 0;                    ///< of the device, in full tiles of efficiency 1
};

/// As ConvProblem::bytes(), with what lies between pixels (aligned_nhwc).
double bytes_with_room(const ConvProblem& problem);
/// What copies of a tile's windows take longer where the last channels of a tap do not fill a group of `width`, in us:
/// 0.8 a tap where 64 bytes lie outside of x (64x100x28x28 -> 100, 3x3, in fp16: 46 us for 23 without that;
/// 64x33x28x28 -> 65: 32 for 14). Boxes of 1x1 take no longer. Those that end at 16 bytes do not by clusters, it
/// seems (1x48x13x13 -> 192, 3x3, takes as long as 64 channels), but by `persistent` blocks, a third or half of that
/// (32x96x17x17 -> 192, 5x5, 29.9 us for 20.7 by the model without, 16x48x38x38 -> 32 15.7 for 10.3).
double ragged_us(const ConvProblem& problem, int width, bool persistent = false);
/// The steps of a tile, of persistent blocks, that are tails (TermTail).
struct TailSteps {
  double count = 0, share = 1;  ///< of a whole step's products
  int width = 0;                ///< of the last channels' boxes

  TailSteps(const ConvProblem& problem, int width);
  /// In us, where a whole step's products take so long, and copies of its rows, and each `more_us` besides.
  double us(double products_us, double copies_us, double more_us) const {
    return count * (std::max(share * products_us, copies_us) + more_us);
  }
};
/// Time in us, launch included.
double slices_us(const ConvProblem& problem, const SlicesWork& work, const SlicesCosts& costs,
                 const DeviceProfile& device);

}  // namespace lenslet::cuda
