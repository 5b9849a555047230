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

/// tile_p of strips: the plan sets the number of rows.
inline constexpr int any_height = 0;

/// A kernel: the filters it handles and the outputs of one thread.
struct DepthwiseVariant {
  std::string_view name;
  int size, stride;           ///< 0: any
  int lanes, tile_p, tile_q;  ///< tile_p may be any_height
  int channels = 0;           ///< FilterChannels' channels; 0: each filter its own
  int ahead = 0;              ///< of kernels that load row by row: rows in flight
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
};
/// `problem`: with padding channels.
std::unique_ptr<const BoundKernel> bind_depthwise(const ConvProblem& problem, const DepthwiseLaunch& launch);

}  // namespace lenslet::cuda
