#pragma once
// What depthwise's kernels compute, and their launch. Plain C++.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

inline constexpr int max_depthwise_threads = 128;
/// From this row length on, taps of a row have a loop of their own, unrolled by four. Shorter rows would leave a tail
/// that waits for memory tap by tap (9x9: 27.5 us with it, 31 without; 3x3 the other way round, 3.6 and 3.0).
inline constexpr int long_row = 8;

/// Outputs of a thread in a row, and channels of a block, of the kernels that share a tile of x.
inline constexpr int shared_depthwise_columns = 7, shared_depthwise_channels = 32;
/// Shared memory of a block for a window of size x size and `rows` x `strips` * shared_depthwise_columns outputs:
/// filters in float, and the tile of x with a pixel of padding every other row.
constexpr std::int64_t shared_depthwise_bytes(std::int64_t size, std::int64_t rows, std::int64_t strips) {
  const std::int64_t height = rows + size - 1, width = strips * shared_depthwise_columns + size - 1;
  return shared_depthwise_channels * (4 * size * size + 2 * (height * width + height / 2));
}

/// tile_p of strips: the plan sets the number of rows.
inline constexpr int any_height = 0;

/// A kernel: the filters it handles and the outputs of one thread.
struct DepthwiseVariant {
  std::string_view name;
  int size, stride;           ///< 0: any
  int lanes, tile_p, tile_q;  ///< tile_p may be any_height
  int channels = 0;           ///< FilterChannels' channels; 0: each filter its own
  int ahead = 0;              ///< of kernels that load row by row: rows in flight
  bool shared = false;        ///< a block shares a tile of x; the plan sets its rows and strips
};

/// Of float32. Largest tile first for each filter. A wider one for 5x5 with stride 2 would not fit the registers.
inline constexpr auto float_depthwise_variants = std::to_array<DepthwiseVariant>({
    {"2x4", 3, 1, 4, 2, 4},        {"1x4", 3, 1, 4, 1, 4},       {"1x1", 3, 1, 4, 1, 1},
    {"2x4", 3, 2, 4, 2, 4},        {"1x4", 3, 2, 4, 1, 4},       {"1x1", 3, 2, 4, 1, 1},
    {"1x4", 5, 1, 4, 1, 4},        {"1x2", 5, 1, 4, 1, 2},       {"1x1", 5, 1, 4, 1, 1},
    {"1x2", 5, 2, 4, 1, 2},        {"1x1", 5, 2, 4, 1, 1},       {"2x4", 7, 1, 4, 2, 4, 0, 2},
    {"1x2", 7, 1, 4, 1, 2, 0, 4},  {"1x1", 7, 1, 4, 1, 1, 0, 5}, {"1x2", 7, 2, 4, 1, 2, 0, 3},
    {"1x1", 7, 2, 4, 1, 1, 0, 5},  {"any4", 0, 0, 4, 1, 1},      {"any4of2", 0, 0, 4, 1, 1, 2},
    {"any4of4", 0, 0, 4, 1, 1, 4}, {"any1", 0, 0, 1, 1, 1, 1},
});

/// Of 16 bits, in order of preference.
inline constexpr auto half_depthwise_variants = std::to_array<DepthwiseVariant>({
    {"by4", 3, 1, 4, any_height, 2},
    {"by4", 3, 2, 4, any_height, 2},
    // For channels that are no multiple of four (ShuffleNet).
    {"by2", 3, 1, 2, any_height, 4},
    {"by2", 3, 2, 2, any_height, 4},
    {"2x3", 5, 1, 8, 2, 3, 0, 3},
    {"1x2", 5, 1, 8, 1, 2, 0, 5},
    {"1x1", 5, 1, 8, 1, 1, 0, 5},
    {"2x2", 5, 2, 8, 2, 2, 0, 3},
    {"1x1", 5, 2, 8, 1, 1, 0, 5},
    {"2x4", 7, 1, 8, 2, 4, 0, 2},
    {"1x1", 7, 1, 8, 1, 1, 0, 4},
    {"1x2", 7, 2, 8, 1, 2, 0, 3},
    {"1x1", 7, 2, 8, 1, 1, 0, 5},
    {"2x7", 5, 1, 8, 2, shared_depthwise_columns, 0, 0, true},
    {"2x7", 7, 1, 8, 2, shared_depthwise_columns, 0, 0, true},
    {"2x7", 9, 1, 8, 2, shared_depthwise_columns, 0, 0, true},
    {"2x7", 11, 1, 8, 2, shared_depthwise_columns, 0, 0, true},
    {"2x7", 13, 1, 8, 2, shared_depthwise_columns, 0, 0, true},
    {"any8", 0, 0, 8, 1, 1},
    {"any2", 0, 0, 2, 1, 1},
    {"any8of2", 0, 0, 8, 1, 1, 2},
    {"any8of8", 0, 0, 8, 1, 1, 8},
    {"any1", 0, 0, 1, 1, 1, 1},
});

struct DepthwiseLaunch {
  std::size_t variant;       ///< index in the variants of the problem's type
  std::int64_t items;        ///< threads in all
  std::int64_t rows, chunk;  ///< of a tile or strip; vectors of channels in a chunk
  std::int64_t biases;       ///< K without padding
  unsigned threads;          ///< of a block
  std::int64_t strips;       ///< of a shared tile
};
/// `problem`: with padding channels.
std::unique_ptr<const BoundKernel> bind_depthwise(const ConvProblem& problem, const DepthwiseLaunch& launch);
/// The same for variants with a shared tile. depthwise_shared.cu.
std::unique_ptr<const BoundKernel> bind_depthwise_shared(const ConvProblem& problem, const DepthwiseLaunch& launch);

}  // namespace lenslet::cuda
