#pragma once
// few_filters: launch. Plain C++.

#include <cstdint>
#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

namespace few_filters_sizes {
inline constexpr int warps = 4, block_threads = 32 * warps;
inline constexpr int ahead = 4;  ///< iterations of a warp whose loads are in flight together
}  // namespace few_filters_sizes

/// `filters`: 1, 2, 4 or 8, K or more; `lanes`: threads of a pixel, a power of two up to 32.
std::unique_ptr<const BoundKernel> bind_few_filters(const ConvProblem& problem, int filters, int lanes,
                                                    std::int64_t blocks);

}  // namespace lenslet::cuda
