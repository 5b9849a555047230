#pragma once
// thin_mma: launch. Plain C++.

#include <cstdint>
#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

namespace thin_mma_sizes {
inline constexpr int block_threads = 128, warps = block_threads / 32;
/// K of two instructions; filters of four.
inline constexpr int most_channels = 32, set_filters = 32;
/// Sets of filters that fit registers, and shared memory. A set is eight fragments of B, two words a lane.
inline constexpr int most_held = 2, most_sets = 16, set_parts = 8 * 32;
/// Rows of 16 pixels that a warp loads before its first product.
inline constexpr int rows16 = 4, warp_pixels = 16 * rows16;
}  // namespace thin_mma_sizes

/// `sets` of filters by `blocks` of threads.
std::unique_ptr<const BoundKernel> bind_thin_mma(const ConvProblem& problem, std::int64_t sets, std::int64_t blocks);

}  // namespace lenslet::cuda
