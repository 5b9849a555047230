#pragma once
// Constants of split-K over a thread-block cluster, split_k_us(); wgmma_gemm, wgmma_tf32 and wgmma_halo have their own.

namespace lenslet::cuda {

struct SplitKCosts {
  double block_us = 0;               ///< us: each wave of blocks: barriers, first operands, block turnover
  double epilogue_us = 0;            ///< us: 128x128 outputs by one block
  double l2_bytes_per_us = 0;        ///< bytes/us: L2 bandwidth of all multiprocessors together
  double exchange_us = 0;            ///< us: reduction in a cluster, its wait
  double exchange_bytes_per_us = 0;  ///< bytes/us: its exchange of partial sums
  double rows_per_us = 0;            ///< rows/us: TMA rows of one multiprocessor, however narrow
  double unhidden = 0;               ///< share of the shorter of products and memory time that is not hidden
};

}  // namespace lenslet::cuda
