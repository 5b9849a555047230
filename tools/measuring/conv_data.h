#pragma once
// A convolution with random operands, and the check of an algorithm's results.

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/conv/problem.h"
#include "ops/core/kernel.h"

namespace lenslet::tool {

struct PosedConv {
  /// x is uniform in [-1, 1); the filters keep the outputs near 1 and are known before the run.
  explicit PosedConv(const ConvProblem& problem);

  ConvProblem problem;
  std::unique_ptr<const Problem> node;
  std::vector<Tensor> inputs;  ///< x, w, bias, residual: what KernelTimer::measure() takes
};

/// A problem for asking plans: its filters' values are never read.
std::unique_ptr<const Problem> pose_unread(const ConvProblem& problem);

/// Reference outputs in double at random positions (all, up to `most`).
class ConvReference {
 public:
  explicit ConvReference(const PosedConv& conv, std::size_t most = 2048);
  /// Largest |y - exact| at those positions beyond the rounding to y's type, relative to the rms of exact. NaN counts
  /// as infinite. `y` is the whole output.
  double error(const Tensor& y) const;
  std::size_t places() const { return places_.size(); }

 private:
  ConvProblem problem_;
  std::vector<std::int64_t> places_;  ///< indices into NCHW
  std::vector<double> exact_;
  double rms_ = 0;
};

}  // namespace lenslet::tool
