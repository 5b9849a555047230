#pragma once
// How wgmma_patch cuts a convolution, and its index arithmetic. Plain C++.
//
// Outputs come in units of 64 pixels of an image or less, which are an operand of 64 rows; a tile is so many units and
// filters. What a unit's windows read of some channels, its patch, [lines][columns][channels], lies in shared memory
// once, and every tap's operand is a part of it: eights of pixels at one distance, that begin elsewhere. Terms come in
// groups of `row_bytes` of channels, and are ordered c, r, s by group.

#include <algorithm>
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

/// What is computed at once of a problem with several groups, group_set(). Windows of one tap have all pixels in one
/// line.
ConvProblem patch_set(const ConvProblem& problem, std::int64_t groups);

/// How a unit lies in an image: its 64 rows are 64 / wide lines of so many pixels. Eights of rows have one distance: a
/// line of the patch where `wide` is 8, so that a unit is 8x8 outputs whatever the window; else 8 pixels, so that lines
/// follow each other, and the pixels between them, which windows of 16 or 32 columns reach into, are outputs of
/// nothing.
struct UnitShape {
  int wide = 8;                ///< 8, 16, 32 or 64
  int columns = 8, lines = 8;  ///< of outputs
  int halo = 0;                ///< (S - 1) * dilation

  UnitShape() = default;
  UnitShape(const ConvProblem& problem, int pixels);
  /// Whether it can be cut so: the outputs of a line of 32 are stored in two parts, the second of which reaches beyond
  /// them, where no output of another unit may lie.
  bool fits(const ConvProblem& problem) const { return columns > 0 && (wide != 32 || problem.q <= columns); }
  std::int64_t units(const ConvProblem& problem) const;
  /// Pixels from a line of the patch to the next, and from an eight of rows to the next.
  int pitch() const { return wide == 8 || wide == 64 ? wide + halo : wide; }
  int eights() const { return wide == 8 ? pitch() : 8; }
  /// Of the 16 rows of a warp, its part: where it lies, and what it stores.
  LENSLET_HOST_DEVICE static int part_line(int warp, int lines) { return warp * lines >> 2; }
  LENSLET_HOST_DEVICE static int part_column(int warp, int wide) { return warp * staged_rows & (wide - 1); }
  int part_columns() const { return wide == 8 ? 8 : std::min(columns, staged_rows); }
  int part_lines() const { return wide == 8 ? 2 : 1; }
};

/// Of a consumer warp, for boxes on their way: three of 2 KB, or two of 3.
inline constexpr int patch_staging_bytes = 6 << 10, most_patch_slots = 3;
LENSLET_HOST_DEVICE constexpr int patch_slots(int filters, int element_bytes) {
  const int slots = element_bytes == 2 ? patch_staging_bytes / staged_box_bytes(filters) : most_patch_slots;
  return slots < most_patch_slots ? slots : most_patch_slots;
}

/// There are kernels of these, of 64 * units pixels and so many filters; the fewest of 16 bits alone.
struct PatchTile {
  int units = 0, filters = 0;
  double efficiency = 0;  ///< share that long sums reach of what large products reach
};
inline constexpr PatchTile patch_tiles[] = {{4, 128, 1.27}, {4, 96, 1.35}, {4, 64, 1.18}, {4, 32, 0.74}, {4, 16, 0.40},
                                            {2, 128, 1.15}, {2, 96, 1.12}, {2, 64, 0.85}, {2, 32, 0.58}};

struct WgmmaPatchPlan {
  std::int64_t together = 1, sets = 1;  ///< groups of the convolution in a set (patch_set), and how many sets
  PatchTile tile;
  UnitShape unit;
  int row_bytes = 128;                    ///< of channels of a pixel: 128, 64 or 32
  std::int64_t units = 0;                 ///< of the output
  std::int64_t tiles_m = 0, tiles_n = 0;  ///< of a set
  std::int64_t groups = 0, taps = 0;      ///< of channels; R*S
  int lines = 0, columns = 0;             ///< of a patch
  // Shared memory, in bytes from its begin: patches of a tile, filters of a tap, parts on their way, barriers.
  int patch_bytes = 0, filter_bytes = 0;  ///< of a unit and of a stage
  int patch_stages = 0, filter_stages = 0;
  bool resident = false;  ///< all filters of a tile have a stage, and stay: a block's tiles are of the same ones
  int filters_at = 0, staging_at = 0, barriers_at = 0, total = 0;

  /// Tiles of the same pixels.
  std::int64_t beside() const { return sets * tiles_n; }
  /// "units=4 filters=64", then " row=32" where it is not 128, " wide=16" where it is not 8, and " together=4".
  std::string str() const;
};

/// Where a unit begins.
struct UnitStart {
  int q = 0, p = 0, n = 0;
};
/// Finds it; of units behind the last, an image that there is not.
struct UnitWalk {
  FastDivider columns, lines;
  int unit_columns = 0, unit_lines = 0;

  UnitWalk() = default;
  UnitWalk(const ConvProblem& problem, const UnitShape& unit);
  LENSLET_HOST_DEVICE UnitStart start(int unit) const {
    const int q = columns.split(unit), p = lines.split(unit);
    return {q * unit_columns, p * unit_lines, unit};
  }
};

/// Every cut there is a kernel for and room: in rows of 128 bytes, and narrower ones that leave fewer zeros; in units
/// of 8x8, and others of which there are fewer; by as few groups together as fill 16 bytes, and more.
std::vector<WgmmaPatchPlan> wgmma_patch_cuts(const ConvProblem& problem);
/// Why there is none, or nothing.
std::optional<std::string> refuse_wgmma_patch(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_patch_us(const ConvProblem& problem, const WgmmaPatchPlan& plan, const DeviceProfile& device);
/// The fastest by wgmma_patch_us() on reference_gpu(). Bits depend on row_bytes and `together`
/// alone, and on row_bytes not where C fits a row.
WgmmaPatchPlan plan_wgmma_patch(const ConvProblem& problem);
/// What str() wrote. Error(invalid_argument).
WgmmaPatchPlan read_wgmma_patch_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
