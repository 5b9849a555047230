#pragma once
// How wgmma_patch cuts a convolution of few tiles and long sums over clusters (wgmma_patch_slices.cuh). Plain C++.
//
// A tile is one unit of 14 lines of 8 pixels and some filters; the blocks of a cluster multiply a slice of its groups
// of channels each and add up. Filters are the rows of its products and pixels the columns, of which an instruction
// takes any number of eights: what began as 224x224 has lines in fourteens, of which none is empty then.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/cuda/wgmma_patch_plan.h"

namespace lenslet::cuda {

inline constexpr int patch_slices_lines = 14, patch_slices_columns = 8;
inline constexpr int patch_slices_pixels = patch_slices_lines * patch_slices_columns;
inline constexpr int patch_slices_filters =
    64;  ///< of 128, by two warpgroups, tiles took longer wherever they were tried
inline constexpr int patch_slices_row_bytes = 128;  ///< of channels of a pixel, a group
/// Room for barriers comes first in shared memory, then for sums, if there are several slices, patches and filters. Of
/// one slice sums come where patches were.
inline constexpr int patch_slices_barrier_bytes = 1 << 10;
inline constexpr int patch_slices_sums_bytes = patch_slices_pixels * patch_slices_filters * 4;
LENSLET_HOST_DEVICE constexpr int patches_at(int slices_log2) {
  return patch_slices_barrier_bytes + (slices_log2 > 0 ? patch_slices_sums_bytes : 0);
}

/// There are kernels of 128 and of 64 filters; a warpgroup multiplies 64. Two blocks of the latter fit a
/// multiprocessor.
struct PatchSlicesPlan {
  int filters = 128;                      ///< of a tile
  int slices = 1;                         ///< of its groups: a power of 2
  int stage_taps = 1;                     ///< whose filters are a stage: 1 or 3
  std::int64_t units = 0;                 ///< of the output: tiles side by side
  std::int64_t tiles_n = 0;               ///< of the same pixels
  std::int64_t groups = 0, taps = 0;      ///< of channels; R*S
  int lines = 0, columns = 0;             ///< of a patch
  int patch_bytes = 0, filter_bytes = 0;  ///< of a stage each
  int patch_stages = 0, filter_stages = 0;
  int total = 0;  ///< of shared memory

  /// Groups of a slice, at most.
  std::int64_t slice_groups() const { return (groups + slices - 1) / slices; }
  /// "lines=14 filters=64 slices=4", then " taps=3" where they are not 1.
  std::string str() const;
};

/// 14 lines of 8 outputs.
UnitShape patch_slices_unit(const ConvProblem& problem);

/// Who of a cluster finishes what of a tile, as SlicesShare: units of 16 filters and 16 pixels, seven of the same
/// filters.
struct PatchSlicesShare {
  static constexpr int row = patch_slices_pixels / unit_rows;
  int rows_log2 = 0;  ///< of a rank
  int warps = 0;

  LENSLET_HOST_DEVICE constexpr int each() const { return row << rows_log2; }
  LENSLET_HOST_DEVICE constexpr int owner(int unit) const { return unit / row >> rows_log2; }
  LENSLET_HOST_DEVICE constexpr int slot(int unit) const { return unit - owner(unit) * each(); }
  LENSLET_HOST_DEVICE constexpr int unit(int rank, int slot) const { return rank * each() + slot; }
  LENSLET_HOST_DEVICE constexpr int of_warp() const { return (each() + warps - 1) / warps; }
  LENSLET_HOST_DEVICE constexpr int first(int warp) const {
    const int slot = warp * of_warp();
    return slot < each() ? slot : each();
  }
};
LENSLET_HOST_DEVICE constexpr PatchSlicesShare patch_slices_share(int slices_log2) {
  constexpr int rows = patch_slices_filters / unit_filters;
  return {log2_of(rows) - slices_log2, rows};
}

/// Every cut there is a kernel for and room; none where there are more than a few tiles, several groups of the
/// convolution, or so few channels that they are no group.
std::vector<PatchSlicesPlan> patch_slices_cuts(const ConvProblem& problem);
/// Time in us, launch included.
double patch_slices_us(const ConvProblem& problem, const PatchSlicesPlan& plan, const DeviceProfile& device);
/// The fastest by patch_slices_us() on reference_gpu(), if there is any. Bits depend on the slices.
std::optional<PatchSlicesPlan> plan_patch_slices(const ConvProblem& problem);
/// Whether it is one of these, and not a WgmmaPatchPlan.
bool is_patch_slices(std::string_view config);
/// What str() wrote. Error(invalid_argument).
PatchSlicesPlan read_patch_slices_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
