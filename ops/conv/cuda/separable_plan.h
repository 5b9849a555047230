#pragma once
// Tile configurations of separable and their cost. Plain C++.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_profile.h"
#include "ops/conv/separable.h"

namespace lenslet::cuda {

inline constexpr int taps_of_size = 9;

/// Words of a channel's nine taps, its bias, and padding; `floats`: float32.
template <bool floats>
inline constexpr int separable_taps = floats ? 12 : 8;
/// Those of a chunk of 64 bytes (separable.h), in units of 16 bytes.
template <bool floats>
inline constexpr int separable_chunk_taps = (floats ? 16 : 32) * separable_taps<floats> / 4;

/// An item is two rows of `columns` adjacent outputs. A warp computes eight items by 8 * tiles filters.
struct SeparableTiling {
  int columns = 1;        ///< or 2
  int tiles = 4;          ///< of eight filters; others are other blocks' (gridDim.y)
  int pixel_warps = 4;    ///< of a block, each with its own items
  int channel_warps = 1;  ///< of a block, for each pixel warp: they split its channels and reduce
  int blocks = 1;         ///< of a group of filters; persistent over items

  std::string str() const;
  int warps() const { return pixel_warps * channel_warps; }
  bool adds() const { return channel_warps > 1; }

  friend bool operator==(const SeparableTiling&, const SeparableTiling&) = default;
};

/// The problem's sizes, as configurations need them.
struct SeparableSizes {
  explicit SeparableSizes(const SeparableProblem& problem);
  std::int64_t items(const SeparableTiling& tiling) const;
  /// Work units of the grid: as many items as a block computes at a time.
  std::int64_t turns(const SeparableTiling& tiling) const;
  /// Groups of filters (gridDim.y).
  std::int64_t groups(const SeparableTiling& tiling) const;
  std::int64_t chunk_taps() const { return floats ? separable_chunk_taps<true> : separable_chunk_taps<false>; }
  std::int64_t warp_chunks(const SeparableTiling& tiling) const;
  std::size_t shared_bytes(const SeparableTiling& tiling) const;

  bool floats;
  std::int64_t chunk;  ///< channels of a warp's chunk: 64 bytes
  std::int64_t n, p, q, c, k, stride, chunks;
};

/// Whether there is a kernel with that many columns and tiles.
bool separable_has(int columns, int tiles, std::int64_t stride);
/// Most warps of a block, and least resident blocks of that size: the launch bounds, 128 or 168 registers a thread.
constexpr int separable_most_warps(std::int64_t stride, int columns, int tiles) {
  return columns == 2 ? 4 : tiles == 4 && stride == 1 ? 8 : 6;
}
constexpr int separable_bound_blocks(int columns) { return columns == 2 ? 3 : 2; }
/// Resident blocks a multiprocessor.
int separable_resident(std::int64_t stride, const SeparableTiling& tiling, std::size_t shared_bytes,
                       const DeviceProfile& device);

/// Configurations worth considering, with the blocks that the device holds at once.
std::vector<SeparableTiling> separable_tilings(const SeparableProblem& problem, const DeviceProfile& device);
/// Time in us, launch included.
double estimate_separable_us(const SeparableProblem& problem, const SeparableTiling& tiling,
                             const DeviceProfile& device);
/// The least estimate on an H200, with this device's number of blocks; if it does not fit the device, the least there.
/// Nothing if the filters exceed shared memory.
std::optional<SeparableTiling> plan_separable(const SeparableProblem& problem, const DeviceProfile& device);
/// Those that fit the device, with its number of blocks, the least estimate on an H200 first.
std::vector<SeparableTiling> separable_by_estimate(const SeparableProblem& problem, const DeviceProfile& device);
/// Reads str()'s text. Error(invalid_argument) where there is no such kernel.
SeparableTiling read_separable_tiling(const SeparableProblem& problem, std::string_view config);

/// Defined in separable.cu.
std::unique_ptr<const BoundKernel> bind_separable(const SeparableProblem& problem, const SeparableTiling& tiling);

}  // namespace lenslet::cuda
