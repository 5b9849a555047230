#pragma once
// Direct sums of few products in NHWC: a line of output pixels at a time, vectors over output channels. Shared by
// depthwise and direct_lines, which differ in where a vector of output channels finds its inputs.

#include <cstdint>
#include <span>

#include "ops/conv/algorithm.h"

namespace lenslet {

/// Output rows for a block of channels (whole groups). Pointers are at the block's first channel. T: float or BFloat16.
template <typename T>
struct LinesOf {
  RowMemory<const T> x;             ///< the image
  std::int64_t x_row = 0;           ///< elements between rows read by consecutive tap rows
  std::int64_t x_pixel = 0;         ///< elements from pixel to pixel
  const float* w = nullptr;         ///< [R][C/groups][S][block]
  std::int64_t group_c = 1;         ///< input channels of a group
  std::int64_t group_k = 1;         ///< output channels of a group
  std::int64_t block = 0;           ///< output channels to compute
  const float* bias = nullptr;      ///< or null
  const float* residual = nullptr;  ///< row 0 of the image, or null
  RowMemory<float> y;
  std::int64_t y_pixel = 0;  ///< pixel pitch in floats, also the residual's and a float depthwise input's
  Rows rows, columns;        ///< to compute
  bool pairs = false;        ///< two rows at a time, sharing loaded inputs
};
using ConvLines = LinesOf<float>;

/// How lines are computed.
struct LineKernel {
  void (*compute)(const ConvLines& lines, const ConvProblem& problem) = nullptr;
  bool pairs = false;  ///< supports two rows at a time
};

/// depthwise's.
LineKernel depthwise_lines_of(const ConvProblem& problem);

/// Output channels of a block: whole groups and, if possible, whole vectors. Its filters stay in L1 over a line.
std::int64_t line_block(const ConvProblem& problem);
/// Size of transform_lines()'s result.
std::int64_t line_filter_floats(const ConvProblem& problem);
/// Packs blocks of `block` channels, the last perhaps smaller, each [R][C/groups][S][block].
void transform_lines(const ConvProblem& problem, const ConvFilter& filter, std::int64_t block, std::span<float> to);

/// Average cost of an output by the any-filter lines, in columns of taps. Latency counts: a block of one or two pixels
/// takes as long as one of eight; taps inside for some pixels only take half as long.
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
