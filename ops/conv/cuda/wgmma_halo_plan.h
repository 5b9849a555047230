#pragma once
// Tile configurations of wgmma_halo, their cost, and index arithmetic. Plain C++.
//
// A unit is up to 64 output pixels of an image, one A operand; a tile is some units by some filters. A unit's halo
// tile, [lines][columns][channels] of a group of channels, is in shared memory once, and every tap's operand is a view
// of it: eights of pixels at a fixed distance, with a shifted start. K is traversed in groups of `row_bytes` of
// channels, ordered c, r, s by group.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/fast_divider.h"
#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/wgmma_halo.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"

namespace lenslet::cuda {

/// The problem of one set of groups (group_set()). 1x1 filters have all pixels in one line.
ConvProblem halo_set(const ConvProblem& problem, std::int64_t groups);

/// Shape of a unit in an image: its 64 rows are 64 / wide lines of `wide` pixels. Eights of rows have a fixed distance.
/// wide 8: that of a line of the halo tile, so a unit is 8x8 outputs for any filter size. Otherwise 8 pixels: lines are
/// contiguous, and halo columns between them are computed and dropped.
struct UnitShape {
  int wide = 8;                ///< 8, 16, 32 or 64
  int columns = 8, lines = 8;  ///< of outputs
  int halo = 0;                ///< (S - 1) * dilation

  UnitShape() = default;
  UnitShape(const ConvProblem& problem, int pixels);
  /// Whether the shape works: a line of 32 is stored in two parts, and the second reaches past its outputs, where no
  /// other unit's may be.
  bool fits(const ConvProblem& problem) const { return columns > 0 && (wide != 32 || problem.q <= columns); }
  std::int64_t units(const ConvProblem& problem) const;
  /// Pixels from a halo tile's line to the next, and from an eight of rows to the next.
  int pitch() const { return wide == 8 || wide == 64 ? wide + halo : wide; }
  int eights() const { return wide == 8 ? pitch() : 8; }
  /// A warp's 16 rows, its part: first line, and what it stores.
  LENSLET_HOST_DEVICE static int part_line(int warp, int lines) { return warp * lines >> 2; }
  LENSLET_HOST_DEVICE static int part_column(int warp, int wide) { return warp * staged_rows & (wide - 1); }
  int part_columns() const { return wide == 8 ? 8 : std::min(columns, staged_rows); }
  int part_lines() const { return wide == 8 ? 2 : 1; }
};

/// Of a consumer warp, for boxes of the epilogue: three of 2 KB, or two of 3.
inline constexpr int halo_staging_bytes = 6 << 10, most_halo_slots = 3;
LENSLET_HOST_DEVICE constexpr int halo_slots(int box_bytes) {
  const int slots = halo_staging_bytes / box_bytes;
  return slots < most_halo_slots ? slots : most_halo_slots;
}

/// Tiles with kernels: 64 * units pixels by `filters`; the narrowest in 16 bits only.
struct HaloTile {
  int units = 0, filters = 0;

  bool operator==(const HaloTile&) const = default;
};
inline constexpr std::array<HaloTile, 9> halo_tiles{
    {{4, 128}, {4, 96}, {4, 64}, {4, 32}, {4, 16}, {2, 128}, {2, 96}, {2, 64}, {2, 32}}};

struct WgmmaHaloPlan {
  std::int64_t together = 1, sets = 1;  ///< groups in a set (halo_set), and sets
  HaloTile tile;
  UnitShape unit;
  int row_bytes = 128;                    ///< channels of a pixel: 128, 64 or 32 bytes
  std::int64_t units = 0;                 ///< of the output
  std::int64_t tiles_m = 0, tiles_n = 0;  ///< of a set
  std::int64_t k_groups = 0, taps = 0;    ///< of channels; R*S
  int lines = 0, columns = 0;             ///< of a halo tile
  // Shared memory in bytes: a tile's halo tiles, a tap's filters, boxes of the epilogue, barriers.
  int halo_bytes = 0, filter_bytes = 0;  ///< of a unit; of a stage
  int halo_stages = 0, filter_stages = 0;
  bool resident = false;  ///< all filters of a tile have a stage and stay; a block's tiles share them
  int filters_at = 0, staging_at = 0, barriers_at = 0, total = 0;

  /// Tiles of the same pixels.
  std::int64_t beside() const { return sets * tiles_n; }
  /// "units=4 filters=64", then " row=32" where it is not 128, " wide=16" where it is not 8, and " together=4".
  std::string str() const;
};

/// Coordinates of a unit's origin.
struct UnitStart {
  int q = 0, p = 0, n = 0;
};
/// Computes it; past the last unit, an image that does not exist.
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

/// All configurations with a kernel that fit shared memory: rows of 128 bytes and narrower ones that pad less; units of
/// 8x8 and shapes with fewer units; the fewest groups that fill 16 bytes, and more.
std::vector<WgmmaHaloPlan> wgmma_halo_tilings(const ConvProblem& problem);
/// Reason of refusal, or nothing.
std::optional<std::string> refuse_wgmma_halo(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_halo_us(const ConvProblem& problem, const WgmmaHaloPlan& plan, const DeviceProfile& device,
                     const WgmmaHaloCosts& costs = wgmma_halo_costs);
/// The fastest by wgmma_halo_us() on reference_gpu(). Bits depend only on `together` and, where C exceeds a row, on
/// row_bytes.
WgmmaHaloPlan plan_wgmma_halo(const ConvProblem& problem);
/// Reads str()'s text. Error(invalid_argument).
WgmmaHaloPlan read_wgmma_halo_plan(const ConvProblem& problem, std::string_view config);

/// Defined in wgmma_halo.cu. Without split-K.
std::unique_ptr<const BoundKernel> bind_wgmma_halo(const ConvProblem& problem, const WgmmaHaloPlan& plan);

}  // namespace lenslet::cuda
