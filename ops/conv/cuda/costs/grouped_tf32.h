#pragma once
// Constants of grouped_tf32's cost model, grouped_tf32_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: block_us, step_us, product_us, memory_share, l2_bytes_per_us, efficiency.

#include <array>

namespace lenslet::cuda {

struct GroupedTf32Costs {
  double block_us = 1.83;           ///< us: a block's prologue and epilogue, latency of first loads and last stores
  double step_us = 0.24;            ///< us: a k-block of one warp alone on the tensor cores, loads with latency
  double product_us = 0.007;        ///< us: a product of it
  double memory_share = 0.45;       ///< share of memory bandwidth
  double l2_bytes_per_us = 12.1e6;  ///< bytes/us: L2 bandwidth of all multiprocessors together
  /// Share of wgmma's rate, by eights of filters a warp: more of them read the halo tile less often.
  std::array<double, 4> efficiency{0.24, 0.47, 0.42, 0.38};
};
inline constexpr GroupedTf32Costs grouped_tf32_costs;

}  // namespace lenslet::cuda
