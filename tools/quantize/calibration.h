#pragma once
// Runs of a network on samples: the values that are to be quantised, and the error that quantising adds to its outputs.

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lenslet/runner.h"
#include "tools/quantize/qdq.h"

namespace lenslet::tool {

/// Files that each give a network's only input.
struct Samples {
  std::vector<std::string> files;
  std::function<Tensor(const std::string& file)> read;
  std::string card = {};  ///< of photos, as JSON; empty if it was assumed
};

struct Calibration {
  std::map<std::string, Histogram> values;  ///< of those that are quantised
  ChannelMeans means;                       ///< of values with two or more axes; sums of them before the end
  std::vector<Tensor> kept;                 ///< the inputs of the first samples
  std::size_t done = 0;                     ///< samples; `runs` of them were run
  std::size_t runs = 0;
  std::size_t failed = 0;  ///< photos that could not be read; stderr has said so
};

/// Goes on behind the samples that `before` has. `see` gets the state before each sample and at the end.
/// Error(invalid_argument) names a value that is not finite; other errors as of Runner.
Calibration calibrate(const OnnxFile& file, const QuantizePlan& plan, const Samples& samples, Calibration before,
                      std::size_t keep, const PlanOptions& how, const std::function<void(const Calibration&)>& see);

/// The outputs of a network on some inputs; a Softmax at the end is left out.
class OutputError {
 public:
  /// Runs `file` on `inputs`, float32.
  OutputError(const OnnxFile& file, std::vector<Tensor> inputs, const PlanOptions& how);
  /// sqrt(sum of squared differences / sum of squares) over all float32 outputs and inputs.
  double of(const OnnxFile& changed) const;
  /// Microseconds of each step of a plan for the first input, by the cost model; keys are node names.
  std::map<std::string, double> estimated_us(const OnnxFile& changed) const;
  /// The network as it is compared.
  const OnnxFile& file() const { return file_; }
  std::size_t inputs() const { return inputs_.size(); }

 private:
  std::vector<std::vector<Tensor>> run(const OnnxFile& file) const;

  OnnxFile file_;
  std::vector<Tensor> inputs_;
  PlanOptions how_;
  std::vector<std::vector<Tensor>> outputs_;  // of each input
};

}  // namespace lenslet::tool
