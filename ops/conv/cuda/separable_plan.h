#pragma once
// How separable shares a problem out over warps and blocks, and what it estimates. Plain C++.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/device_profile.h"
#include "ops/conv/separable.h"

namespace lenslet::cuda {

/// Words of a channel's nine taps, its bias, and room; `floats`: in float32.
template <bool floats>
inline constexpr int separable_taps = floats ? 12 : 8;
/// Those of a chunk of 64 bytes (separable.h), in 16 bytes.
template <bool floats>
inline constexpr int separable_chunk_taps = (floats ? 16 : 32) * separable_taps<floats> / 4;

/// Items are `columns` outputs beside each other and those below them; a warp has eight items and 8 * tiles filters.
struct SeparableCut {
  int columns = 1;        ///< or 2
  int tiles = 4;          ///< of eight filters; the others are other blocks' (gridDim.y)
  int pixel_warps = 4;    ///< of a block, each with items of its own
  int channel_warps = 1;  ///< of a block, for each of those: they share out its channels, and their sums are added
  int blocks = 1;         ///< of a group of filters; each goes on to other items

  std::string str() const;
  int warps() const { return pixel_warps * channel_warps; }
  bool adds() const { return channel_warps > 1; }

  friend bool operator==(const SeparableCut&, const SeparableCut&) = default;
};

/// A problem as cuts see it.
struct SeparableSizes {
  explicit SeparableSizes(const SeparableProblem& problem);
  std::int64_t items(const SeparableCut& cut) const;
  /// What the blocks share out: as many items as a block has at a time.
  std::int64_t turns(const SeparableCut& cut) const;
  /// Of filters.
  std::int64_t groups(const SeparableCut& cut) const;
  std::int64_t chunk_taps() const { return floats ? separable_chunk_taps<true> : separable_chunk_taps<false>; }
  std::int64_t warp_chunks(const SeparableCut& cut) const;
  std::size_t shared_bytes(const SeparableCut& cut) const;

  bool floats;
  std::int64_t chunk;  ///< channels that a warp takes at a time: 64 bytes
  std::int64_t n, p, q, c, k, stride, chunks;
};

/// Columns and tiles of filters that there are kernels of.
bool separable_has(int columns, int tiles, std::int64_t stride);
/// Warps of a block that such a kernel can have, and blocks of so many that a multiprocessor holds at least: with them
/// the compiler has 128 registers a thread, or 168.
constexpr int separable_most_warps(std::int64_t stride, int columns, int tiles) {
  return columns == 2 ? 4 : tiles == 4 && stride == 1 ? 8 : 6;
}
constexpr int separable_bound_blocks(int columns) { return columns == 2 ? 3 : 2; }
/// Blocks of a multiprocessor.
int separable_resident(std::int64_t stride, const SeparableCut& cut, std::size_t shared_bytes,
                       const DeviceProfile& device);

/// Those worth looking at, with the blocks that the device holds at once.
std::vector<SeparableCut> separable_cuts(const SeparableProblem& problem, const DeviceProfile& device);
/// In us, launch included.
double estimate_separable_us(const SeparableProblem& problem, const SeparableCut& cut, const DeviceProfile& device);
/// The one of the least estimate for an H200, with the device's blocks, or, where the device has no room for it, for
/// the device. Nothing: filters exceed shared memory.
std::optional<SeparableCut> plan_separable(const SeparableProblem& problem, const DeviceProfile& device);
/// What str() wrote. Error(invalid_argument) where there is no such kernel.
SeparableCut read_separable_cut(const SeparableProblem& problem, std::string_view config);

}  // namespace lenslet::cuda
