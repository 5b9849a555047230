#pragma once
// Taps of a window that are inside of the image.

#include <algorithm>
#include <cstdint>

#include "ops/conv/problem.h"

namespace lenslet {

/// [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};

/// The range of `taps` inside an image of `size` for any of the outputs [first, last]; begin == end if there is none.
inline Range taps_inside(std::int64_t first, std::int64_t last, std::int64_t stride, std::int64_t pad,
                         std::int64_t dilation, std::int64_t taps, std::int64_t size) {
  const std::int64_t low = first * stride - pad, high = last * stride - pad;
  const std::int64_t begin = high >= 0 ? 0 : std::min(taps, (-high + dilation - 1) / dilation);
  const std::int64_t end = low >= size ? begin : std::clamp((size - 1 - low) / dilation + 1, begin, taps);
  return {begin, end};
}

inline Range rows_inside(const ConvProblem& p, std::int64_t first, std::int64_t last) {
  return taps_inside(first, last, p.stride_h, p.pad_top, p.dilation_h, p.r, p.h);
}
inline Range columns_inside(const ConvProblem& p, std::int64_t first, std::int64_t last) {
  return taps_inside(first, last, p.stride_w, p.pad_left, p.dilation_w, p.s, p.w);
}

/// Average number of tap rows (columns) inside, over an image's outputs; `step` output columns are taken together.
inline double mean_rows_inside(const ConvProblem& p) {
  double taps = 0;
  for (std::int64_t i = 0; i < p.p; ++i) taps += static_cast<double>(rows_inside(p, i, i).count());
  return taps / static_cast<double>(p.p);
}
inline double mean_columns_inside(const ConvProblem& p, std::int64_t step = 1) {
  double taps = 0;
  std::int64_t parts = 0;
  for (std::int64_t q = 0; q < p.q; q += step, ++parts)
    taps += static_cast<double>(columns_inside(p, q, std::min(p.q, q + step) - 1).count());
  return taps / static_cast<double>(parts);
}

}  // namespace lenslet
