#pragma once
// Sums of few terms in NHWC, without columns: a line of output pixels at a time, vectors over output channels. What the
// algorithms depthwise and direct_lines share; they differ in where a vector of output channels finds its inputs.

#include <cstdint>
#include <span>

#include "ops/conv/algorithm.h"

namespace lenslet {

/// Rows of output over a block of channels that is whole groups. Pointers are at the block's first channel.
struct ConvLines {
  RowMemory<const float> x;         ///< the image
  std::int64_t x_row = 0;           ///< floats from a row to the one that the next row of taps reads
  std::int64_t x_pixel = 0;         ///< floats from pixel to pixel
  const float* w = nullptr;         ///< [R][C/groups][S][block]
  std::int64_t group_c = 1;         ///< input channels of a group
  std::int64_t group_k = 1;         ///< output channels of a group
  std::int64_t block = 0;           ///< output channels to compute
  const float* bias = nullptr;      ///< or null
  const float* residual = nullptr;  ///< row 0 of the image, or null
  RowMemory<float> y;
  std::int64_t y_pixel = 0;  ///< floats from pixel to pixel, of the residual, too; of depthwise inputs as well
  Rows rows, columns;        ///< to compute
  bool pairs = false;        ///< two of them at a time, so that their inputs are loaded once
};

/// How lines are computed.
struct LineKernel {
  void (*compute)(const ConvLines& lines, const ConvProblem& problem) = nullptr;
  bool pairs = false;  ///< can it do two rows at a time?
};

/// Output channels computed at a time: whole groups and, where it can be, whole vectors, whose filters stay in L1 while
/// a line of pixels passes.
std::int64_t line_block(const ConvProblem& problem);
/// Floats of the filters as transform_lines() makes them.
std::int64_t line_filter_floats(const ConvProblem& problem);
/// A block of channels after the other, each [R][C/groups][S][block].
void transform_lines(const ConvProblem& problem, const ConvFilter& filter, std::span<float> to);

/// Columns of taps that lines of any filter take for an output, on average, and what waits as long: a block of two
/// pixels or one takes as long as one of eight, taps that lie in the image for some of them only half as long.
double any_taps(const ConvProblem& problem);

class BoundLines final : public BoundRowConv {
 public:
  BoundLines(const ConvProblem& problem, LineKernel kernel, const DeviceProfile& device);

 private:
  void compute(const ConvRun& run) const override;
  bool has_rows() const override;
  void compute_rows(const ConvRun& run, const ImageRows& rows) const override;
  void compute_lines(const ConvRun& run, const ImageRows& at, Rows rows, std::int64_t k) const;
  void compute_repeated(const ConvRun& run, const ImageRows& at, std::int64_t p, float* repeated) const;
  ConvLines lines_of(const ConvRun& run, const ImageRows& at, std::int64_t k) const;

  const LineKernel kernel_;
  const std::int64_t block_;       ///< channels at a time
  const std::int64_t columns_;     ///< pixels of a row at a time
  const std::int64_t strip_rows_;  ///< rows at a time
};

}  // namespace lenslet
