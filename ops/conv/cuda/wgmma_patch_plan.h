#pragma once
// How wgmma_patch cuts a convolution, and its index arithmetic. Plain C++.
//
// Outputs come in units of 8x8 pixels of an image, which are an operand of 64 rows; a tile is so many units and
// filters. What a unit's windows read of some channels, its patch, [lines][columns][channels], lies in shared memory
// once, and every tap's operand is a part of it: 8 lines of 8 pixels that begin elsewhere. Terms come in groups of
// `row_bytes` of channels, and are ordered c, r, s by group.

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

/// There are kernels of these, of 64 * units pixels and so many filters; the fewest of 16 bits alone.
struct PatchTile {
  int units = 0, filters = 0;
  double efficiency = 0;  ///< share that long sums reach of what large products reach
};
inline constexpr PatchTile patch_tiles[] = {{4, 128, 1.30}, {4, 64, 1.15}, {4, 32, 0.60}, {4, 16, 0.35},
                                            {2, 128, 1.15}, {2, 64, 0.80}, {2, 32, 0.45}};

struct WgmmaPatchPlan {
  PatchTile tile;
  int row_bytes = 128;     ///< of channels of a pixel: 128, 64 or 32
  std::int64_t units = 0;  ///< of the output
  std::int64_t tiles_m = 0, tiles_n = 0;
  std::int64_t groups = 0, taps = 0;  ///< of channels; R*S
  int lines = 0, columns = 0;         ///< of a patch
  // Shared memory, in bytes from its begin: patches of a tile, filters of a tap, parts on their way, barriers.
  int patch_bytes = 0, filter_bytes = 0;  ///< of a unit and of a stage
  int patch_stages = 0, filter_stages = 0;
  bool resident = false;  ///< all filters have a stage, and stay
  int filters_at = 0, staging_at = 0, barriers_at = 0, total = 0;

  /// "units=4 filters=64", then " row=32" where it is not 128.
  std::string str() const;
};

/// Where a unit begins.
struct UnitStart {
  int q = 0, p = 0, n = 0;
};
/// Finds it; of units behind the last, an image that there is not.
struct UnitWalk {
  FastDivider columns, lines;

  UnitWalk() = default;
  explicit UnitWalk(const ConvProblem& problem);
  LENSLET_HOST_DEVICE UnitStart start(int unit) const {
    const int q = columns.split(unit), p = lines.split(unit);
    return {q * unit_side, p * unit_side, unit};
  }
};

/// Every cut there is a kernel for and room: in rows of 128 bytes, and narrower ones that leave fewer zeros.
std::vector<WgmmaPatchPlan> wgmma_patch_cuts(const ConvProblem& problem);
/// Why there is none, or nothing.
std::optional<std::string> refuse_wgmma_patch(const ConvProblem& problem);
/// Time in us, launch included.
double wgmma_patch_us(const ConvProblem& problem, const WgmmaPatchPlan& plan, const DeviceProfile& device);
/// The fastest by wgmma_patch_us() on reference_gpu(). Bits depend on row_bytes alone, and not where C fits a row.
WgmmaPatchPlan plan_wgmma_patch(const ConvProblem& problem);
/// What str() wrote. Error(invalid_argument).
WgmmaPatchPlan read_wgmma_patch_plan(const ConvProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
