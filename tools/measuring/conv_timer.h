#pragma once
// Times one convolution algorithm on one device. The verb `bench conv` and tools/peers/cudnn are made of it; unlike
// the other tools they see the algorithms themselves (ops/conv), because the public interface runs networks only.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/conv/choose.h"

namespace lenslet::tool {

/// One problem's operands on the host, drawn: x uniform in [-1,1], filters of a size that keeps the output's near one.
struct ConvOperands {
  Tensor x, w, bias;  ///< NCHW; [K,C/groups,R,S]; [K]
  explicit ConvOperands(const ConvProblem& problem);
  /// x as the algorithm reads it: its layout, its pads if it wants them.
  Tensor x_for(const ConvAlgorithm& algorithm, const ConvProblem& problem) const;
};

/// Outputs at drawn places (all of them up to 2048), in double: what an algorithm's result is compared with.
class ConvReference {
 public:
  ConvReference(const ConvProblem& problem, const ConvOperands& operands);
  /// Largest |y - exact| over those places, by the rms of exact; NaN is infinitely far. `y` is the whole output in
  /// `layout`.
  double error(const float* y, Format layout) const;
  std::size_t places() const { return places_.size(); }

 private:
  ConvProblem problem_;
  std::vector<std::int64_t> places_;  ///< indices into NCHW
  std::vector<double> exact_;
  double rms_ = 0;
};

struct ConvTime {
  double median_us = 0, p10_us = 0, p90_us = 0;
  std::size_t samples = 0;
  double error = 0;  ///< ConvReference::error
};

/// What the device reaches at most, measured in this run.
struct DevicePeak {
  double flops_per_us = 0;  ///< fp32
  double bytes_per_us = 0;  ///< read + written by a large copy
  std::string how;          ///< by what they were measured, for the table's head
};

class ConvTimer {
 public:
  virtual ~ConvTimer() = default;
  virtual DeviceKind device() const = 0;
  virtual MachineRates rates() const = 0;
  virtual DevicePeak peak() = 0;
  /// The algorithm must accept the problem. `seconds`: time to spend on samples, but at least 7 are taken.
  virtual ConvTime time(const ConvAlgorithm& algorithm, const ConvProblem& problem, const ConvOperands& operands,
                        const ConvReference& reference, double seconds) = 0;
};

/// Median and spread of at least one sample.
ConvTime summarise(std::vector<double> samples_us);

std::unique_ptr<ConvTimer> cpu_conv_timer(int threads);
/// Through replays of a CUDA graph that holds the convolution several times over (20, or 5 from 20 GFLOP on), always on
/// the same buffers, as ../shared/peers/conv_bench.py does: what fits the L2 is found there. Builds with CUDA only.
std::unique_ptr<ConvTimer> cuda_conv_timer(int device, bool tf32);

}  // namespace lenslet::tool
