#pragma once
// The convolution's sizes as kernel arguments. Plain C++.

#include <algorithm>
#include <limits>

#include "ops/conv/problem.h"

namespace lenslet::cuda {

/// Part of a kernel's argument. Offsets within an image are 32 bits where fits_32_bits(), because 64-bit index
/// arithmetic is slow.
template <typename Index = int>
struct DeviceProblem {
  Index height, width, c;  ///< input [N][height][width][c], or [N][c][height][width]
  Index k, r, s, p, q;
  Index stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  Index n;  ///< images; keeps the number of ints odd, for ConvCall

  explicit DeviceProblem(const ConvProblem& problem)
      : height(static_cast<Index>(problem.h)),
        width(static_cast<Index>(problem.w)),
        c(static_cast<Index>(problem.c)),
        k(static_cast<Index>(problem.k)),
        r(static_cast<Index>(problem.r)),
        s(static_cast<Index>(problem.s)),
        p(static_cast<Index>(problem.p)),
        q(static_cast<Index>(problem.q)),
        stride_h(static_cast<Index>(problem.stride_h)),
        stride_w(static_cast<Index>(problem.stride_w)),
        dilation_h(static_cast<Index>(problem.dilation_h)),
        dilation_w(static_cast<Index>(problem.dilation_w)),
        pad_top(static_cast<Index>(problem.pad_top)),
        pad_left(static_cast<Index>(problem.pad_left)),
        n(static_cast<Index>(problem.n)) {}
};

/// Offsets within one image (pads included), within one output image and within the filters are below 2^31.
inline bool fits_32_bits(const ConvProblem& problem) {
  const ConvProblem padded = problem.with_explicit_padding();
  // In double: padded width times channels times taps may overflow 64 bits.
  const auto product = [](auto... factors) { return (static_cast<double>(factors) * ...); };
  return std::max({product(padded.h, padded.w, padded.c), product(problem.p, problem.q, problem.k),
                   product(problem.k, problem.group_c(), problem.r, problem.s)}) <
         static_cast<double>(std::numeric_limits<std::int32_t>::max());
}

}  // namespace lenslet::cuda
