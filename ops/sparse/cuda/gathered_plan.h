#pragma once
// How gathered_tiles cuts a problem, how its filters lie, and what it is estimated to take. Plain
// C++, tested without a device.
//
// A block has the sums of some outputs and a tile of the filters in shared memory. Tap after tap, the pairs that lead
// to its outputs are packed into batches of at most batch_rows, so that nothing is multiplied that is not there. A
// batch's channels come in units of unit_bytes; some units, of one batch or of several, are a step, which is loaded and
// waited for together. Where blocks are few, several share the batches of one block's outputs: slices.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/cuda/host_device.h"
#include "base/device_profile.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Pairs multiplied at a time, and bytes of channels of each.
inline constexpr int batch_rows = 64, unit_bytes = 64;
inline constexpr int most_units = 4, most_ahead = 3, most_slices = 8;

/// Bytes of channels that are multiplied at once.
inline constexpr int group_bytes = 16;

/// Filters of a tile. Of 128 the sums of two blocks do not fit the registers.
inline constexpr int most_columns = 64;

/// Threads of a block whose tile has so many filters: a warp has 32 of them, or all 16.
LENSLET_HOST_DEVICE constexpr int warps_n(int columns) { return columns <= 32 ? 1 : columns / 32; }
LENSLET_HOST_DEVICE constexpr int warps_m(int columns) { return columns <= 32 ? 4 : 2; }
LENSLET_HOST_DEVICE constexpr int block_threads(int columns) { return 32 * warps_n(columns) * warps_m(columns); }

/// Outputs of a block where slices share them, and where there are fewest; whole ones have at least the latter.
inline constexpr int few_rows = 64, fewest_rows = 32;

struct GatheredPlan {
  int columns;  ///< filters of a tile: 16, 32 or 64
  int rows;     ///< outputs of a block, at most: few_rows or more, a multiple of 16
  int units;    ///< of a step: 1, 2 or 4
  int ahead;    ///< steps that are under way while one is multiplied
  int fill;     ///< blocks of outputs, times tiles of filters, that fill the device
  int slices;   ///< among which the batches of one block's outputs may be divided, at most

  /// "rows=64 columns=64 units=2 ahead=1 fill=528 slices=8".
  std::string str() const;
  /// Outputs of a block in a run that has so many: such that blocks fill the device once, or a whole number of times.
  LENSLET_HOST_DEVICE int rows_of(std::int64_t outputs) const {
    const int all = static_cast<int>(outputs);
    if (all < fill * 8) return fewest_rows;
    if (slices > 1 && all < fill * few_rows) return few_rows;
    if (all < fill * fewest_rows) return fewest_rows;
    const int times = (all + fill * rows - 1) / (fill * rows);
    return ((all + fill * times - 1) / (fill * times) + 7) / 8 * 8;
  }
  /// Blocks among which the batches of one block's outputs are divided, in a run that has so many outputs: so that they
  /// fill the device once, and twice where there is a third of that (18,250 outputs of 64 -> 64 in float32: 122 us for
  /// 171 on an H100). The order in which an output's products are added follows from it.
  LENSLET_HOST_DEVICE int slices_of(std::int64_t outputs, std::int64_t taps) const {
    if (outputs <= 0 || outputs >= fill * few_rows) return 1;
    const int of_block = rows_of(outputs), alone = (static_cast<int>(outputs) + of_block - 1) / of_block;
    const int often = (3 * alone > fill ? 2 * fill : fill) / alone;
    const int most = taps / 3 < slices ? static_cast<int>(taps / 3) : slices;
    const int taken = often < most ? often : most;
    return taken < 1 ? 1 : taken;
  }
  /// As many as any number of outputs fills that there may be.
  std::int64_t blocks(const SparseConvProblem& p) const;
  /// With their slices.
  std::int64_t grid_x(const SparseConvProblem& p) const;
  std::int64_t tiles_n(const SparseConvProblem& p) const { return (p.filters + columns - 1) / columns; }
  /// Batches that may begin in a step, of pairs with `pair_units` units.
  LENSLET_HOST_DEVICE int step_batches(std::int64_t pair_units) const {
    return static_cast<int>((units + pair_units - 1) / pair_units);
  }
  /// Batches whose numbers of sites are there at a time: a power of two.
  int number_slots(std::int64_t pair_units) const;
  std::size_t shared_bytes(std::int64_t taps, std::int64_t pair_units) const;

  // The workspace: where each tap's pairs of each block begin, ints [taps, blocks + 1]; how many slices of a block are
  // done, ints; the slices' sums.
  LENSLET_HOST_DEVICE int counters(std::int64_t tiles) const { return static_cast<int>(fill * tiles); }
  /// Where the sums begin.
  std::size_t parts_offset(const SparseConvProblem& p) const;
  std::size_t workspace_bytes(const SparseConvProblem& p) const;
};

/// Of large blocks only where there are outputs for them.
GatheredPlan plan_gathered(const SparseConvProblem& p, const DeviceProfile& device);
/// Any but the columns may be others than plan_gathered()'s. Error(invalid_argument) where `config` is no plan of this
/// problem otherwise.
GatheredPlan read_gathered_plan(const SparseConvProblem& p, std::string_view config);

/// Units of a pair's channels.
std::int64_t gathered_units(const SparseConvProblem& p);
/// Filters, [tiles_n][taps][units][16 channels][columns], as they lie in shared memory while they are multiplied.
std::size_t gathered_filter_bytes(const SparseConvProblem& p, const GatheredPlan& plan);
void pack_gathered_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w, const GatheredPlan& plan,
                           std::span<std::byte> to);

/// For the bound: all rows and pairs that there is room for.
double gathered_us(const SparseConvProblem& p, const GatheredPlan& plan, const DeviceProfile& device);

/// Defined in gathered_tiles.cu. `length`: numbers of the rulebook.
std::unique_ptr<const BoundKernel> bind_gathered_tiles(const SparseConvProblem& problem, std::int64_t length,
                                                       const GatheredPlan& plan);

}  // namespace lenslet::cuda
