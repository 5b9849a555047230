#pragma once
// The launch of direct_pixel and direct_block. Plain C++.

#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// `all_filters`: a thread computes all filters of its pixel; `quads`: channels by fours.
std::unique_ptr<const BoundKernel> bind_direct_pixel(const ConvProblem& problem, bool all_filters, bool quads);

}  // namespace lenslet::cuda
