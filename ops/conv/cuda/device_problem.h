#pragma once
// A convolution in numbers as kernels read it. Plain C++.

#include <algorithm>
#include <limits>

#include "ops/conv/problem.h"

namespace lenslet::cuda {

/// Part of a kernel's argument. Kernels count in 32 bits within an image, because 64-bit index arithmetic costs: Index
/// is int where fits_32_bits().
template <typename Index = int>
struct DeviceProblem {
  Index height, width, c;  ///< input [N][height][width][c], or [N][c][height][width]
  Index k, r, s, p, q;
  Index stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  Index n;  ///< images; with it the ints are odd in number (ConvCall)

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
  // In double, because an image times its channels is countable but padded width times channels times taps may not be.
  const auto product = [](auto... factors) { return (static_cast<double>(factors) * ...); };
  return std::max({product(padded.h, padded.w, padded.c), product(problem.p, problem.q, problem.k),
                   product(problem.k, problem.group_c(), problem.r, problem.s)}) <
         static_cast<double>(std::numeric_limits<std::int32_t>::max());
}

}  // namespace lenslet::cuda
