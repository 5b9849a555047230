#pragma once
// Constants of grouped_tf32's cost model, grouped_tf32_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: product_us.

#include <array>

namespace lenslet::cuda {

struct GroupedTf32Costs {
  double block_us = 1.52;          ///< us: a block's prologue and epilogue, latency of first loads and last stores
  double step_us = 0.10;           ///< us: a k-block of one warp alone on the tensor cores, loads with latency
  double product_us = 0.007;       ///< us: a product of it
  double memory_share = 0.57;      ///< share of memory bandwidth
  double l2_bytes_per_us = 5.6e6;  ///< bytes/us: L2 bandwidth of all multiprocessors together
  /// Share of wgmma's rate, by eights of filters a warp: more of them read the halo tile less often.
  std::array<double, 4> efficiency{0.18, 0.33, 0.34, 0.38};
};
inline constexpr GroupedTf32Costs grouped_tf32_costs;

}  // namespace lenslet::cuda
