#pragma once
// Constants of wgmma_halo's cost model, wgmma_halo_us(). docs/cost-models.md has the rows and errors of the fit.
// By hand: all but epilogue_us, narrow_epilogue_us, tap_us, resident_tap_us, narrow_rows_us, float_small_factor.

#include <array>

namespace lenslet::cuda {

struct WgmmaHaloCosts {
  double start_us = 1.3;             ///< us: launch to first product: barriers, tensor maps, memory latency
  double epilogue_us = 1.20;         ///< us: 128x128 outputs, what the other consumer's products do not hide
  double narrow_epilogue_us = 1.51;  ///< us: the same in boxes of 32 filters
  double tap_us = 0.20;              ///< us: least time of a tap, barriers and instructions
  double resident_tap_us = 0.091;    ///< us: the same where filters stay, instructions alone
  double narrow_tile_us = 0.75;      ///< us: a tile of up to 32 filters, 16 bits
  double resident_group_us = 1.0;    ///< us: each further K group where filters stay
  double sets_us = 0.6;              ///< us: several sets of groups, 16 bits
  double float_sets_us = 0.38;       ///< us: the same, float32
  double narrow_rows_us = 0.47;      ///< us: a TF32 tile with rows of 64 or 32 bytes
  double unhidden = 0.42;            ///< share of the shorter of products and memory time that is not hidden
  double l2_bytes_per_us = 60e3;     ///< bytes/us: L2 bandwidth of a multiprocessor
  double lines_factor = 1.03;        ///< factor of products: units with contiguous lines
  double float_sets_factor = 1.08;   ///< factor of a tile's time: sets of groups, float32
  double small_factor = 1.05;        ///< factor of a tile's time: 128 pixels by 64 filters, 16 bits
  double float_small_factor = 1.1;   ///< the same, float32
  double small_waves_factor = 0.88;  ///< factor of these two: several waves and one set
  double dilated_factor = 1.2;       ///< factor of a tile's time: dilation
  double seen_share = 0.2;  ///< share of filters that stay: what their load adds, the rest precedes the kernel's start
  /// Share of the device's rate for long gemm_k, by `halo_tiles`.
  std::array<double, 9> efficiency{1.27, 1.35, 1.18, 0.74, 0.40, 1.15, 1.12, 0.85, 0.58};
};
inline constexpr WgmmaHaloCosts wgmma_halo_costs;

}  // namespace lenslet::cuda
