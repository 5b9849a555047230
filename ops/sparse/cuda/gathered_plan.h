#pragma once
// gathered_tiles: configuration, filter layout and cost model. Plain C++, tested without a device.
//
// A block keeps the accumulators of some outputs and a tile of filters in shared memory. Tap by tap, the pairs of its
// outputs are packed into batches of at most batch_rows, so that only existing pairs are multiplied. A batch's channels
// come in units of unit_bytes; a step is a few units, of one batch or several, that are loaded and waited for together.
// With few blocks, several share the batches of a block's outputs: splits.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/cuda/host_device.h"
#include "base/device_profile.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Pairs per batch, and bytes of channels per unit of each.
inline constexpr int batch_rows = 64, unit_bytes = 64;
inline constexpr int most_units = 4, most_ahead = 3, max_split_k = 8;

/// Bytes of channels per multiply step.
inline constexpr int group_bytes = 16;

/// Filters per tile. With 128 the accumulators of two blocks would not fit the registers.
inline constexpr int most_columns = 64;

/// Warps along the filters of a tile: each has 32 of them, or all 16.
LENSLET_HOST_DEVICE constexpr int warps_n(int columns) { return columns <= 32 ? 1 : columns / 32; }
LENSLET_HOST_DEVICE constexpr int warps_m(int columns) { return columns <= 32 ? 4 : 2; }
LENSLET_HOST_DEVICE constexpr int block_threads(int columns) { return 32 * warps_n(columns) * warps_m(columns); }

/// Outputs per block that is split into splits, and the fewest per block without splits.
inline constexpr int few_rows = 64, fewest_rows = 32;

struct GatheredPlan {
  int columns;  ///< filters of a tile: 16, 32 or 64
  int rows;     ///< outputs of a block, at most: few_rows or more, a multiple of 16
  int units;    ///< of a step: 1, 2 or 4
  int ahead;    ///< steps in flight while one is multiplied
  int fill;     ///< blocks of outputs, times tiles of filters, that fill the device
  int split_k;  ///< most blocks that share the batches of one block's outputs

  /// "rows=64 columns=64 units=2 ahead=1 fill=528 split_k=8".
  std::string str() const;
  /// Outputs per block for a run with `outputs`: blocks fill the device once, or a whole number of times.
  LENSLET_HOST_DEVICE int rows_of(std::int64_t outputs) const {
    const int all = static_cast<int>(outputs);
    if (all < fill * 8) return fewest_rows;
    if (split_k > 1 && all < fill * few_rows) return few_rows;
    if (all < fill * fewest_rows) return fewest_rows;
    const int times = (all + fill * rows - 1) / (fill * rows);
    return ((all + fill * times - 1) / (fill * times) + 7) / 8 * 8;
  }
  /// Blocks that share the batches of one block's outputs, for a run with `outputs`: enough to fill the device once, or
  /// twice from a third of that on (18,250 outputs, 64 -> 64, float32: 122 us instead of 171 on an H100). It determines
  /// the order in which an output's products are added.
  LENSLET_HOST_DEVICE int split_k_of(std::int64_t outputs, std::int64_t taps) const {
    if (outputs <= 0 || outputs >= fill * few_rows) return 1;
    const int of_block = rows_of(outputs), alone = (static_cast<int>(outputs) + of_block - 1) / of_block;
    const int often = (3 * alone > fill ? 2 * fill : fill) / alone;
    const int most = taps / 3 < split_k ? static_cast<int>(taps / 3) : split_k;
    const int taken = often < most ? often : most;
    return taken < 1 ? 1 : taken;
  }
  /// The most blocks that any number of outputs fills.
  std::int64_t blocks(const SparseConvProblem& p) const;
  /// The same including splits.
  std::int64_t grid_x(const SparseConvProblem& p) const;
  std::int64_t tiles_n(const SparseConvProblem& p) const { return (p.filters + columns - 1) / columns; }
  /// The most batches that begin in a step, for pairs with `pair_units` units.
  LENSLET_HOST_DEVICE int step_batches(std::int64_t pair_units) const {
    return static_cast<int>((units + pair_units - 1) / pair_units);
  }
  /// Batches whose site numbers are in shared memory at a time: a power of two.
  int number_slots(std::int64_t pair_units) const;
  std::size_t shared_bytes(std::int64_t taps, std::int64_t pair_units) const;

  // The workspace: offsets of each tap's pairs per block, ints [taps, blocks + 1]; finished splits per block, ints; the
  // splits' partial sums.
  LENSLET_HOST_DEVICE int counters(std::int64_t tiles) const { return static_cast<int>(fill * tiles); }
  /// Offset of the partial sums.
  std::size_t parts_offset(const SparseConvProblem& p) const;
  std::size_t workspace_bytes(const SparseConvProblem& p) const;
};

/// Large blocks only with enough outputs.
GatheredPlan plan_gathered(const SparseConvProblem& p, const DeviceProfile& device);
/// All values except the columns may differ from plan_gathered()'s. Error(invalid_argument) when `config` is no plan of
/// this problem.
GatheredPlan read_gathered_plan(const SparseConvProblem& p, std::string_view config);

/// Units per pair.
std::int64_t gathered_units(const SparseConvProblem& p);
/// Filters [tiles_n][taps][units][16 channels][columns], in their shared memory layout.
std::size_t gathered_filter_bytes(const SparseConvProblem& p, const GatheredPlan& plan);
void pack_gathered_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w, const GatheredPlan& plan,
                           std::span<std::byte> to);

/// For the bound: assumes the largest number of rows and pairs.
double gathered_us(const SparseConvProblem& p, const GatheredPlan& plan, const DeviceProfile& device);

/// Defined in gathered_tiles.cu. `length`: numbers of the rulebook.
std::unique_ptr<const BoundKernel> bind_gathered_tiles(const SparseConvProblem& problem, std::int64_t length,
                                                       const GatheredPlan& plan);

}  // namespace lenslet::cuda
