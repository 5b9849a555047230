#pragma once
// The launch of `direct`. Plain C++.

#include <memory>

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// `wide`: by indices of 64 bits.
std::unique_ptr<const BoundKernel> bind_direct(const ConvProblem& problem, bool wide);

}  // namespace lenslet::cuda
