#pragma once
// Kernels count in 32 bits within an image, because 64-bit index arithmetic costs.

#include <algorithm>
#include <limits>

#include "ops/conv/problem.h"

namespace lenslet::cuda {

/// Offsets within one image (pads included), within one output image and within the filters are below 2^31.
inline bool fits_32_bits(const ConvProblem& problem) {
  const ConvProblem padded = problem.with_explicit_padding();
  // In double, because an image times its channels is countable but padded width times channels times taps may not be.
  const auto product = [](auto... factors) { return (static_cast<double>(factors) * ...); };
  return std::max({product(padded.h, padded.w, padded.c), product(problem.p, problem.q, problem.k),
                   product(problem.k, problem.group_c(), problem.r, problem.s)}) <
         static_cast<double>(std::numeric_limits<std::int32_t>::max());
}

}  // namespace lenslet::cuda
