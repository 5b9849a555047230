#pragma once
// neighbour_tiles and neighbour_mma: configuration, filter layout and cost model. Plain C++, tested without a device.
//
// A block has some outputs, a table of their neighbours, and `columns` filters. Its warps take tiles: a few outputs and
// `width` filters, with accumulators in registers. A warp walks the taps that its outputs have; a step multiplies a
// tap's rows of x, or those of its channels that are loaded together.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/cuda/host_device.h"
#include "base/device_profile.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet::cuda {

/// Element types and instructions.
enum class SparseArithmetic { fma, tf32, fp16, bf16 };

constexpr int element_bytes(SparseArithmetic arithmetic) {
  return arithmetic == SparseArithmetic::fma || arithmetic == SparseArithmetic::tf32 ? 4 : 2;
}

struct NeighbourPlan {
  bool fma;     ///< multiply-adds of float32; or tensor cores
  int width;    ///< filters of a warp's tile
  int columns;  ///< filters of a block: a multiple of that
  int pieces;   ///< of a warp's outputs: of 16, or, where fma, of 8
  int terms;    ///< 32-byte groups of channels per step: 1, 2 or 4
  int warps;    ///< of a block
  int rows;     ///< outputs of a block, at most: a multiple of tile_rows()
  int fill;     ///< blocks of outputs that fill the device
  int stage;    ///< steps of filters per stage in shared memory: all steps, or two buffers of some

  std::string str() const;

  LENSLET_HOST_DEVICE int tile_rows() const { return pieces * (fma ? 8 : 16); }
  LENSLET_HOST_DEVICE int step_bytes() const { return 32 * terms; }
  /// Bytes of a row that a lane loads at once.
  LENSLET_HOST_DEVICE int lane_bytes() const { return fma || terms > 1 ? 16 : 8; }
  /// True if a lane's share of such rows is a single load.
  bool aligned(std::int64_t row_bytes) const { return row_bytes % lane_bytes() == 0; }
  /// Outputs per block for a run with `outputs`: blocks fill the device once, or a whole number of times.
  LENSLET_HOST_DEVICE int rows_of(std::int64_t outputs) const {
    const int of = tile_rows(), all = fill * turns(outputs), each = (static_cast<int>(outputs) + all - 1) / all;
    return each < of ? of : (each + of - 1) / of * of;
  }
  LENSLET_HOST_DEVICE int turns(std::int64_t outputs) const {
    const std::int64_t full = std::int64_t{fill} * rows;
    return outputs <= full ? 1 : (static_cast<int>(outputs) - 1) / static_cast<int>(full) + 1;
  }
  /// The most blocks that any number of outputs fills.
  std::int64_t blocks(const SparseConvProblem& p) const {
    const std::int64_t tiles = (p.max_outputs + tile_rows() - 1) / tile_rows();
    const std::int64_t full = std::int64_t{fill} * turns(p.max_outputs);
    return tiles < 1 ? 1 : tiles < full ? tiles : full;
  }
  /// Blocks along the filters.
  std::int64_t tiles_n(const SparseConvProblem& p) const { return (p.filters + columns - 1) / columns; }
  /// Steps per tap.
  std::int64_t chunks(std::int64_t row_bytes) const { return (row_bytes + step_bytes() - 1) / step_bytes(); }
  /// Stages for the `steps` of all taps.
  LENSLET_HOST_DEVICE int stages(int steps) const { return (steps + stage - 1) / stage; }
  LENSLET_HOST_DEVICE std::int64_t filter_bytes(int steps) const {
    return (stage < steps ? 2 : 1) * std::int64_t{stage} * step_bytes() * columns;
  }
  /// neighbour_tiles: bytes for the rows of x of a step, all warps.
  LENSLET_HOST_DEVICE int row_bytes() const { return fma ? warps * tile_rows() * step_bytes() : 0; }
  std::size_t shared_bytes(std::int64_t taps, std::int64_t chunks) const;
};

/// Bytes of a row of x.
inline std::int64_t row_bytes(const SparseConvProblem& p, SparseArithmetic arithmetic) {
  return p.channels * element_bytes(arithmetic);
}

NeighbourPlan plan_neighbours(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device);
/// Error(invalid_argument) when `config` is no plan of this problem.
NeighbourPlan read_neighbour_plan(const SparseConvProblem& p, SparseArithmetic arithmetic, std::string_view config);

/// Filters in tiles of `width`, then taps, then steps. fma: [channels of a step][width]. Others: per 32 bytes of
/// channels and 16 filters, the 16 bytes of each lane in mma.sync order: with g = lane / 4 and t = lane % 4, two words
/// of channels, then those of the filter eight on. The assignment of channels and filters is free: a lane's 16 bytes of
/// x (8 in a step of 32) are words of two instructions, and its accumulators are of adjacent filters.
std::size_t neighbour_filter_bytes(const SparseConvProblem& p, const NeighbourPlan& plan, SparseArithmetic arithmetic);
void pack_neighbour_filters(const SparseConvOp& op, const SparseConvProblem& p, const float* w,
                            const NeighbourPlan& plan, SparseArithmetic arithmetic, std::span<std::byte> to);

/// For the bound: assumes the largest number of pairs.
double neighbour_us(const SparseConvProblem& p, SparseArithmetic arithmetic, const DeviceProfile& device);

}  // namespace lenslet::cuda
