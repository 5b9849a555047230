#pragma once
// How gathered_tiles and gathered_mma cut a problem, how their filters lie, and what they are estimated to take. Plain
// C++, tested without a device.
//
// A block has the sums of some outputs and a tile of the filters in shared memory. Tap after tap, the pairs that lead
// to its outputs are packed into batches of at most batch_rows, so that nothing is multiplied that is not there; of a
// batch come step_bytes of channels at a time.

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
inline constexpr int batch_rows = 128, step_bytes = 64;
/// Batches whose steps are under way while one is multiplied.
inline constexpr int steps_ahead = 2;

/// What is multiplied, and by what.
enum class SparseArithmetic { fma, tf32, fp16, bf16 };

constexpr int element_bytes(SparseArithmetic arithmetic) {
  return arithmetic == SparseArithmetic::fma || arithmetic == SparseArithmetic::tf32 ? 4 : 2;
}
/// Bytes of channels that are multiplied at once: 4 floats; a tensor core's terms.
LENSLET_HOST_DEVICE constexpr int group_bytes(SparseArithmetic arithmetic) {
  return arithmetic == SparseArithmetic::fma ? 16 : 32;
}

/// Filters of a tile. In float32 of 128 the sums of two blocks do not fit the registers.
constexpr int most_columns(SparseArithmetic arithmetic) { return arithmetic == SparseArithmetic::fma ? 64 : 128; }

/// Threads of a block whose tile has so many filters: a warp has 32 of them, or all 16.
LENSLET_HOST_DEVICE constexpr int warps_n(int columns) { return columns <= 32 ? 1 : columns / 32; }
LENSLET_HOST_DEVICE constexpr int warps_m(int columns) { return columns <= 32 ? 4 : 2; }
LENSLET_HOST_DEVICE constexpr int block_threads(int columns) { return 32 * warps_n(columns) * warps_m(columns); }

/// Outputs of a block where there are few, and where there are fewer still.
inline constexpr int few_rows = 64, fewest_rows = 32;

struct GatheredPlan {
  int columns;    ///< filters of a tile: 16, 32, 64 or 128
  int rows;       ///< outputs of a block, at most
  int few_below;  ///< few_rows where a run has fewer outputs than this, fewest_rows below a quarter; no bit depends on
                  ///< it

  /// "rows=128 columns=64 few_below=25344".
  std::string str() const;
  /// Outputs of a block in a run that has so many.
  LENSLET_HOST_DEVICE int rows_of(std::int64_t outputs) const {
    return outputs >= few_below ? rows : outputs >= few_below / 4 ? few_rows : fewest_rows;
  }
  /// As many as any number of outputs fills that there may be.
  std::int64_t blocks(const SparseConvProblem& p) const;
  std::int64_t tiles_n(const SparseConvProblem& p) const { return (p.filters + columns - 1) / columns; }
  /// Pairs of a batch that there may be.
  LENSLET_HOST_DEVICE int most_batch() const { return rows < batch_rows ? rows : batch_rows; }
  std::size_t shared_bytes(std::int64_t taps) const;
  /// Where each tap's pairs of each block begin: ints [taps, blocks + 1].
  std::size_t workspace_bytes(const SparseConvProblem& p) const;
};

/// Blocks are small where those of `rows` would leave multiprocessors of `device` with less than one and a half.
GatheredPlan plan_gathered(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device);
/// Any few_below. Error(invalid_argument) where `config` is no plan of this problem otherwise.
GatheredPlan read_gathered_plan(const SparseConvProblem& p, SparseArithmetic arithmetic, std::string_view config);

/// Steps of a pair's channels.
std::int64_t gathered_steps(const SparseConvProblem& p, SparseArithmetic arithmetic);
/// Filters, [tiles_n][taps][steps][64 * columns bytes], as they lie in shared memory while they are multiplied:
/// fma: 16 channels of `columns` filters; others: two groups of 32 bytes of channels, [columns][32 bytes], whose halves
/// are swapped in every second four filters, so that eight rows lie in different banks.
std::size_t gathered_filter_bytes(const SparseConvProblem& p, const GatheredPlan& plan, SparseArithmetic arithmetic);
void pack_gathered_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w, const GatheredPlan& plan,
                           SparseArithmetic arithmetic, std::span<std::byte> to);

/// For the bound: all rows and pairs that there is room for.
double gathered_us(const SparseConvProblem& p, const GatheredPlan& plan, SparseArithmetic arithmetic,
                   const DeviceProfile& device);

}  // namespace lenslet::cuda
