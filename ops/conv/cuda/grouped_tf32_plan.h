#pragma once
// Tile configurations of grouped_tf32 and their cost. Plain C++.
//
// Channels are processed in sets of as many eights as hold whole groups: one for groups of 4 or 8, two for 16, three
// for 12 or 24, four for 32, five for 20 or 40, at most eight. A set is a small dense convolution with zeros across
// groups. A block computes some sets of an output tile; a warp has one to four eights of filters of four fragments of
// 16 pixels. All configurations add in the same order and give the same bits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/grouped_tf32.h"

namespace lenslet::cuda {

/// Fragments (output rows) of a warp: 16 columns each, or 8 columns of two rows.
inline constexpr int grouped_tf32_rows = 4;
inline constexpr int grouped_tf32_most_warps = 8, grouped_tf32_most_eights = 8, grouped_tf32_most_filter_eights = 4;

struct GroupedTf32Tiling {
  std::int64_t filter_eights = 1;             ///< of a warp; divides a set's
  std::int64_t tile_p = 4, tile_q = 16;       ///< tile_q: 8 or 16
  std::int64_t channels = 8;                  ///< of a block: whole sets
  std::int64_t set_eights = 1;                ///< from here on: follows from the problem
  std::int64_t row_groups = 1;                ///< groups of warps along output rows
  std::int64_t warps = 1;                     ///< row_groups times the warps along channels
  std::int64_t halo_rows = 0;                 ///< of the halo tile
  std::int64_t phases = 1, phase_pixels = 0;  ///< halo tile columns stride_w apart are adjacent
  std::int64_t pixel_vectors = 0;             ///< pixel pitch of the halo tile in 16 bytes: odd, so that eight adjacent
                                              ///< pixels are in different banks
  std::int64_t laid_vectors = 0;              ///< the same for the epilogue: 2 or 6 modulo 8, against bank conflicts
  std::int64_t blocks = 0;

  std::int64_t halo_pixels() const { return halo_rows * phases * phase_pixels; }
  std::size_t shared_bytes() const;
  /// "filters=8 tile=8x16 channels=32"
  std::string str() const;
};

/// 0 where there is no such set.
std::int64_t grouped_tf32_set_eights(const ConvProblem& problem);
/// Filter rows that are multiplied at once.
int grouped_tf32_rows_together(const ConvProblem& problem);
/// All configurations of a problem that has sets.
std::vector<GroupedTf32Tiling> grouped_tf32_tilings(const ConvProblem& problem);
/// Time in us, launch included.
double grouped_tf32_us(const ConvProblem& problem, const GroupedTf32Tiling& tiling, const DeviceProfile& device,
                       const GroupedTf32Costs& costs = grouped_tf32_costs);
/// The fastest by grouped_tf32_us() that fits the device's shared memory, or nothing.
std::optional<GroupedTf32Tiling> plan_grouped_tf32(const ConvProblem& problem, const DeviceProfile& device);
/// Reads str()'s text. Error(invalid_argument).
GroupedTf32Tiling read_grouped_tf32_tiling(const ConvProblem& problem, std::string_view config,
                                           const DeviceProfile& device);

/// Defined in grouped_tf32.cu.
std::unique_ptr<const BoundKernel> bind_grouped_tf32(const ConvProblem& problem, const GroupedTf32Tiling& tiling);

/// Layout of the filters: [sets][S][eights of channels][R][eights of filters][lanes][2] floats, a lane's fragment of
/// operand B. Gives the index for lane 0.
struct GroupedTf32Filters {
  std::int64_t r, s, eights;
  explicit GroupedTf32Filters(const ConvProblem& problem)
      : r(problem.r), s(problem.s), eights(grouped_tf32_set_eights(problem)) {}
  std::int64_t at(std::int64_t set, std::int64_t column, std::int64_t channel_eight, std::int64_t row,
                  std::int64_t filter_eight) const {
    return ((((set * s + column) * eights + channel_eight) * r + row) * eights + filter_eight) * 64;
  }
};

}  // namespace lenslet::cuda
