#pragma once
// How wgmma_patch cuts a convolution, and its index arithmetic. Plain C++.
//
// Outputs come in units of 8x8 pixels of an image, which are an operand of 64 rows; a tile is so many units and
// filters. What a unit's windows read of some channels, its patch, [lines][columns][channels], lies in shared memory
// once, and every tap's operand is a part of it: 8 lines of 8 pixels that begin elsewhere. Terms come in groups of
// `row_bytes` of channels, and are ordered c, r, s by group.
//
// There are two kernels. In wgmma_patch.cuh persistent blocks walk through tiles. In wgmma_patch_slices.cuh the blocks
// of a cluster multiply a slice of one tile's groups each and add up: for problems of few tiles. There a tile may also
// be turned: filters are the rows of its products and pixels the columns, of which an instruction takes any number of
// eights, so that a unit of 14 lines leaves none empty in what began as 224x224.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// Lines and columns of a unit.
inline constexpr int unit_side = 8;
/// Lines of a part of a unit, which a warp stores.
inline constexpr int part_lines = staged_rows / unit_side;

/// Of a consumer warp, for boxes on their way, and room for the widest.
inline constexpr int patch_slots = 3, patch_slot_bytes = 2 << 10;

/// There are kernels of these, of 8 * lines * units pixels and so many filters; the fewest of 16 bits alone.
struct PatchTile {
  int units = 0, filters = 0;
  double efficiency = 0;  ///< share that long sums reach of what large products reach
  int lines = unit_side;  ///< of a unit; others than 8: turned, one unit

  constexpr int pixels() const { return unit_side * lines * units; }
  /// Warpgroups that multiply.
  constexpr int consumers() const { return lines == unit_side ? units : filters / 64; }
};
inline constexpr PatchTile patch_tiles[] = {{4, 128, 1.30}, {4, 64, 1.15}, {4, 32, 0.60}, {4, 16, 0.35},
                                            {2, 128, 1.15}, {2, 64, 0.80}, {2, 32, 0.45}};

/// Of clusters, a warpgroup each multiplies a unit, or turned 64 filters. Two units of 8 lines, by 64 or 128 filters,
/// and four of them took longer wherever they were tried.
inline constexpr int turned_lines = 14;
inline constexpr PatchTile patch_slices_tiles[] = {
    {1, 128, 0.94, turned_lines}, {1, 64, 0.99, turned_lines}, {1, 64, 0.83}, {1, 32, 0.59}};
/// Of such a block's shared memory sums come first, behind them
inline constexpr int patch_barriers_bytes = 1 << 10;  ///< room for barriers

struct WgmmaPatchPlan {
  PatchTile tile;
  int slices = 0;          ///< a tile's, added up by a cluster; 0: persistent blocks
  int stage_taps = 1;      ///< of slices: taps whose filters are a stage
  int blocks = 1;          ///< of slices: that a multiprocessor holds
  int row_bytes = 128;     ///< of channels of a pixel: 128, 64 or 32
  std::int64_t units = 0;  ///< of the output
  std::int64_t tiles_m = 0, tiles_n = 0;
  std::int64_t groups = 0, taps = 0;  ///< of channels; R*S
  int lines = 0, columns = 0;         ///< of a patch
  // Shared memory, in bytes from its begin: patches of a tile, filters of a tap, parts on their way, barriers. Of
  // slices the sums, barriers, patches, filters.
  int patch_bytes = 0, filter_bytes = 0;  ///< of a unit and of a stage
  int patch_stages = 0, filter_stages = 0;
  bool resident = false;  ///< all filters have a stage, and stay
  int filters_at = 0, staging_at = 0, barriers_at = 0, total = 0;

  /// Groups of channels of a slice, at most.
  std::int64_t slice_groups() const { return slices == 0 ? groups : (groups + slices - 1) / slices; }
  /// "units=4 filters=64", then " row=32" where it is not 128; of clusters "units=2 filters=128 slices=4",
  /// "lines=14 filters=64 slices=2" where tiles are turned.
  std::string str() const;
};

/// Where a unit begins.
struct UnitStart {
  int q = 0, p = 0, n = 0;
};
/// Finds it; of units behind the last, an image that there is not.
struct UnitWalk {
  FastDivider columns, lines;
  int unit_lines = unit_side;

  UnitWalk() = default;
  explicit UnitWalk(const ConvProblem& problem, int unit_lines = unit_side);
  LENSLET_HOST_DEVICE UnitStart start(int unit) const {
    const int q = columns.split(unit), p = lines.split(unit);
    return {q * unit_side, p * unit_lines, unit};
  }
};

/// Every cut there is a kernel for and room: in rows of 128 bytes, and narrower ones that leave fewer zeros. Slices
/// where there are few tiles.
std::vector<WgmmaPatchPlan> wgmma_patch_cuts(const ConvProblem& problem);
/// Why there is none, or nothing.
std::optional<std::string> refuse_wgmma_patch(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_patch_us(const ConvProblem& problem, const WgmmaPatchPlan& plan, const DeviceProfile& device);
/// The fastest by wgmma_patch_us() on reference_gpu(). Bits depend on row_bytes, not where C fits a row, and on slices.
WgmmaPatchPlan plan_wgmma_patch(const ConvProblem& problem);
/// What str() wrote. Error(invalid_argument).
WgmmaPatchPlan read_wgmma_patch_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
