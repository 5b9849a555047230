#pragma once
// Sums of few terms in NHWC, without columns: a line of output pixels at a time, vectors over output channels. What the
// algorithms depthwise and direct_lines share; they differ in where a vector of output channels finds its inputs.

#include <cstdint>
#include <span>

#include "ops/conv/algorithm.h"

namespace lenslet {

/// One row of output, or two, over a block of channels that is whole groups.
struct ConvLine {
  const float* x = nullptr;         ///< pixel 0 of the first image row that is read, the block's first input channel
  std::int64_t x_row = 0;           ///< floats from one row that is read to the next one
  std::int64_t x_rows = 0;          ///< how many are read
  std::int64_t x_pixel = 0;         ///< floats from pixel to pixel
  const float* w = nullptr;         ///< [R][C/groups][S][block]
  std::int64_t first = 0;           ///< the tap of (the first) output row that reads x; of the second: stride_h less
  std::int64_t group_c = 1;         ///< input channels of a group
  std::int64_t group_k = 1;         ///< output channels of a group
  std::int64_t k = 0;               ///< floats from output pixel to pixel
  std::int64_t block = 0;           ///< output channels to compute
  const float* bias = nullptr;      ///< of the block, or null
  const float* residual = nullptr;  ///< pixel 0 of the row, the block's first channel, or null
  float* y = nullptr;               ///< pixel 0 of the row, the block's first channel
  int y_rows = 1;                   ///< 1 or 2
  std::int64_t y_row = 0;           ///< floats from one of them to the next, and from one's residual to the next's
};

/// How lines are computed.
struct LineKernel {
  void (*compute)(const ConvLine& line, const ConvProblem& problem) = nullptr;
  bool pairs = false;  ///< also two rows at a time, of which the second's windows begin stride_h lower
};

/// Floats of the filters as transform_lines() makes them.
std::int64_t line_filter_floats(const ConvProblem& problem);
/// A block of channels after the other, each [R][C/groups][S][block].
void transform_lines(const ConvProblem& problem, const ConvFilter& filter, std::span<float> to);

class BoundLines final : public BoundRowConv {
 public:
  BoundLines(const ConvProblem& problem, LineKernel kernel, int threads);

  /// A worker's copy of the image rows below one output row, where a depthwise filter has several outputs a channel:
  /// each channel repeated.
  static std::int64_t repeated_floats(const ConvProblem& problem);

 private:
  void compute(const ConvRun& run) const override;
  bool has_rows() const override { return repeated_floats(problem) == 0; }
  void compute_rows(const ConvRun& run, const ImageRows& rows) const override;
  void compute_line(const ConvRun& run, const ImageRows& at, std::int64_t p, std::int64_t count, std::int64_t k,
                    float* repeated) const;

  const LineKernel kernel_;
  const std::int64_t block_;
};

}  // namespace lenslet
