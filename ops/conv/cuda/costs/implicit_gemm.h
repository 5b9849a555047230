#pragma once
// Constants of implicit_gemm's cost model, gemm_plan_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: all but idle_warps, tile_us, nchw_efficiency, nchw_tile_us.

#include <array>

namespace lenslet::cuda {

struct ImplicitGemmCosts {
  double idle_warps = 0.43;         ///< warps: latency; w warps of a scheduler take as long as w + this at full rate
  double block_us = 0.75;           ///< us: prologue (first loads from memory) and epilogue of a block
  double tile_us = 0.48;            ///< us: the same for m + n = 128
  double scalar_efficiency = 0.75;  ///< factor of the rate: scalar loads take four times the instructions
  double nchw_efficiency = 0.77;    ///< factor of the rate: NCHW transposes eight adjacent pixels
  double nchw_tile_us = 0.68;       ///< us: NCHW's tile_us, which waits for the first of them
  double store_speed = 0.9;         ///< share of memory bandwidth: the epilogue's stores, which nothing hides
  double sum_us = 0.6;              ///< us: the split-K reduction kernel besides its launch, an L2 latency
  double sum_speed = 1.67;          ///< share of memory bandwidth: that kernel
  double cluster_speed = 0.85;      ///< share of memory bandwidth: reduction within a cluster, waits included
  /// Share of peak of a full multiprocessor, limited by shared memory reads, by GemmTile.
  std::array<double, 5> efficiency{0.95, 0.95, 0.86, 0.80, 0.84};
};
inline constexpr ImplicitGemmCosts implicit_gemm_costs;

}  // namespace lenslet::cuda
