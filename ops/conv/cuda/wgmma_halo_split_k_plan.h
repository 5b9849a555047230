#pragma once
// Tile configurations of wgmma_halo with cluster split-K (wgmma_halo_split_k.cuh). Plain C++.
//
// A tile is one unit of 14 lines of 8 pixels by some filters; each block of a cluster multiplies a split of its groups
// of channels. Filters are gemm_m and pixels gemm_n, which wgmma allows in any multiple of eight: images that began as
// 224x224 have a multiple of 14 lines, so no unit is partly empty.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/costs/wgmma_halo_split_k.h"
#include "ops/conv/cuda/wgmma_halo_plan.h"

namespace lenslet::cuda {

inline constexpr int halo_split_k_lines = 14, halo_split_k_columns = 8;
inline constexpr int halo_split_k_pixels = halo_split_k_lines * halo_split_k_columns;
inline constexpr int halo_split_k_filters =
    64;  ///< tiles of 128 filters, by two warpgroups, took longer wherever they were tried
inline constexpr int halo_split_k_row_bytes = 128;  ///< channels of a pixel of a group
/// Shared memory: barriers first, then partial sums if there are several splits, halo tiles, filters. Without split-K
/// the accumulators are staged over the halo tiles.
inline constexpr int halo_split_k_barrier_bytes = 1 << 10;
inline constexpr int halo_split_k_acc_bytes = halo_split_k_pixels * halo_split_k_filters * 4;
LENSLET_HOST_DEVICE constexpr int halo_tiles_at(int split_k_log2) {
  return halo_split_k_barrier_bytes + (split_k_log2 > 0 ? halo_split_k_acc_bytes : 0);
}

/// One warpgroup multiplies all of a tile's halo_split_k_filters filters.
struct HaloSplitKPlan {
  int split_k = 1;                       ///< splits of its groups: a power of 2
  int stage_taps = 1;                    ///< taps of a filter stage: 1 or 3
  std::int64_t units = 0;                ///< of the output: tiles along gemm_n
  std::int64_t tiles_n = 0;              ///< of the same pixels
  std::int64_t k_groups = 0, taps = 0;   ///< of channels; R*S
  int lines = 0, columns = 0;            ///< of a halo tile
  int halo_bytes = 0, filter_bytes = 0;  ///< of a stage each
  int halo_stages = 0, filter_stages = 0;
  int total = 0;  ///< of shared memory

  /// Groups of a split, at most.
  std::int64_t split_groups() const { return (k_groups + split_k - 1) / split_k; }
  /// "lines=14 filters=64 split_k=4", then " taps=3" where they are not 1.
  std::string str() const;
};

/// 14 lines of 8 outputs.
UnitShape halo_split_k_unit(const ConvProblem& problem);

/// How a cluster shares a tile's reduction, as SplitKShare: fragments of 16 filters by 16 pixels, seven of the same
/// filters.
struct HaloSplitKShare {
  static constexpr int row = halo_split_k_pixels / fragment_rows;
  int rows_log2 = 0;  ///< of a rank, log2
  int warps = 0;

  LENSLET_HOST_DEVICE constexpr int each() const { return row << rows_log2; }
  LENSLET_HOST_DEVICE constexpr int owner(int fragment) const { return fragment / row >> rows_log2; }
  LENSLET_HOST_DEVICE constexpr int slot(int fragment) const { return fragment - owner(fragment) * each(); }
  LENSLET_HOST_DEVICE constexpr int fragment(int rank, int slot) const { return rank * each() + slot; }
  LENSLET_HOST_DEVICE constexpr int of_warp() const { return (each() + warps - 1) / warps; }
  LENSLET_HOST_DEVICE constexpr int first(int warp) const {
    const int slot = warp * of_warp();
    return slot < each() ? slot : each();
  }
};
LENSLET_HOST_DEVICE constexpr HaloSplitKShare halo_split_k_share(int split_k_log2) {
  constexpr int rows = halo_split_k_filters / fragment_filters;
  return {log2_of(rows) - split_k_log2, rows};
}

/// All configurations with a kernel that fit; none with more than a few tiles, with grouped convolutions, or with less
/// than a group of channels.
std::vector<HaloSplitKPlan> halo_split_k_tilings(const ConvProblem& problem);
/// Time in us, launch included.
double halo_split_k_us(const ConvProblem& problem, const HaloSplitKPlan& plan, const DeviceProfile& device,
                       const HaloSplitKCosts& costs = halo_split_k_costs);
/// The fastest by halo_split_k_us() on reference_gpu(), or nothing. Bits depend on the split-K factor.
std::optional<HaloSplitKPlan> plan_halo_split_k(const ConvProblem& problem);
/// Whether the text is one of these, and not a WgmmaHaloPlan's.
bool is_halo_split_k(std::string_view config);
/// Reads str()'s text. Error(invalid_argument).
HaloSplitKPlan read_halo_split_k_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
