#pragma once
// Tile configurations of the grouped kernel (grouped_mma.cuh) and their cost: grouped_mma has 16-bit types,
// grouped_tf32 has float32. Plain C++.
//
// Channels are processed in sets of as many eights as hold whole groups: one for groups of 4 or 8, two for 16, three
// for 12 or 24, four for 32, five for 20 or 40, at most eight (16 bits: four). A set is a small dense convolution with
// zeros across groups. A block computes some sets of an output tile; a warp has one to four eights of filters of some
// fragments of 16 pixels. All configurations add in the same order and give the same bits.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/host_device.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/costs/grouped_tf32.h"

namespace lenslet::cuda {

inline constexpr int grouped_most_warps = 8, grouped_most_filter_eights = 4;

/// Sets that a block has of 16 bits; half as many where a stride makes the halo tile four times as large.
LENSLET_HOST_DEVICE constexpr int grouped_half_sets(std::int64_t set_eights, std::int64_t stride) {
  return (set_eights == 1 ? 8 : 4) / (stride == 1 ? 1 : 2);
}
/// Fragments (output rows) of a warp: 16 columns each, or 8 columns of two rows. 16 bits: a tile has eight rows, a
/// block eight warps, and a warp a whole set.
LENSLET_HOST_DEVICE constexpr int grouped_warp_rows(bool half, std::int64_t set_eights, std::int64_t stride) {
  return half ? 8 / (grouped_most_warps / grouped_half_sets(set_eights, stride)) : 4;
}

struct GroupedTiling {
  int rows_together = 1;                 ///< filter rows that are multiplied at once: 1 or 3
  std::int64_t filter_eights = 1;        ///< of a warp; divides a set's
  std::int64_t tile_p = 4, tile_q = 16;  ///< tile_q: 8 or 16
  std::int64_t channels = 8;             ///< of a block: whole sets
  bool half = false;                     ///< from here on: follows from the problem
  std::int64_t set_eights = 1;
  std::int64_t steps = 0;                     ///< k-blocks of a set and filter row
  std::int64_t row_groups = 1;                ///< groups of warps along output rows
  std::int64_t warps = 1;                     ///< row_groups times the warps along channels
  std::int64_t halo_rows = 0;                 ///< of the halo tile
  std::int64_t phases = 1, phase_pixels = 0;  ///< halo tile columns stride_w apart are adjacent; 16 bits: one phase
  std::int64_t beyond = 0;                    ///< pixels past the last one that output columns outside of the image
                                              ///< read; their values do not matter
  std::int64_t pixel_vectors = 0;             ///< pixel pitch of the halo tile in 16 bytes: odd, so that eight adjacent
                                              ///< pixels are in different banks
  std::int64_t laid_vectors = 0;              ///< the same for the epilogue; float32: 2 or 6 modulo 8
  std::int64_t blocks = 0;

  std::int64_t halo_pixels() const { return halo_rows * phases * phase_pixels; }
  std::size_t shared_bytes() const;
  /// "filters=8 tile=8x16 channels=32"; 16 bits: "rows=3".
  std::string str() const;
};

/// 0 where there is no such set.
std::int64_t grouped_set_eights(const ConvProblem& problem);
/// All configurations of a problem that has sets.
std::vector<GroupedTiling> grouped_tilings(const ConvProblem& problem);
/// Time in us, launch included. grouped_tf32_us(): of float32.
double grouped_tf32_us(const ConvProblem& problem, const GroupedTiling& tiling, const DeviceProfile& device,
                       const GroupedTf32Costs& costs = grouped_tf32_costs);
double grouped_us(const ConvProblem& problem, const GroupedTiling& tiling, const DeviceProfile& device);
/// The fastest by grouped_us() that fits the device's shared memory, or nothing. 16 bits: the first or nothing.
std::optional<GroupedTiling> plan_grouped(const ConvProblem& problem, const DeviceProfile& device);
/// Reads str()'s text. Error(invalid_argument).
GroupedTiling read_grouped_tiling(const ConvProblem& problem, std::string_view config, const DeviceProfile& device);

/// Defined in grouped_mma.cu.
std::unique_ptr<const BoundKernel> bind_grouped(const ConvProblem& problem, const GroupedTiling& tiling);

/// Layout of the filters: [sets][k-blocks][R][eights of filters][lanes] of two words, a lane's fragment of operand B.
///
/// A k-block is what an instruction multiplies: two vectors of 16 bytes. These are two vectors of a set's channels at
/// one filter column, the last of an odd number alone; or, where a set is one vector, the same one at two columns.
struct GroupedFilters {
  std::int64_t r, s, eights, vectors;  ///< of a set: eights of filters, vectors of channels
  std::int64_t element_bytes;

  explicit GroupedFilters(const ConvProblem& problem);
  std::int64_t steps() const { return vectors == 1 ? (s + 1) / 2 : s * ((vectors + 1) / 2); }
  /// Index of lane 0's first word.
  std::int64_t at(std::int64_t set, std::int64_t step, std::int64_t row, std::int64_t filter_eight) const {
    return (((set * steps() + step) * r + row) * eights + filter_eight) * 64;
  }
  /// Filter column of a vector of a k-block, and its first channel in the set. Either may be beyond what there is.
  std::int64_t column(std::int64_t step, std::int64_t half) const {
    return vectors == 1 ? 2 * step + half : step / ((vectors + 1) / 2);
  }
  std::int64_t channel(std::int64_t step, std::int64_t half) const {
    return vectors == 1 ? 0 : (step % ((vectors + 1) / 2) * 2 + half) * (16 / element_bytes);
  }
};

}  // namespace lenslet::cuda
