#pragma once
// Checks on sample inputs that a network's activations stay within float16's range.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/model.h"
#include "runtime/exec/plan.h"

namespace lenslet {

/// A value that exceeds float16's range.
struct BeyondRange {
  std::string value;
  std::string step;    ///< that computes it: "conv1 (Conv)"; empty for a network input
  double largest = 0;  ///< its largest magnitude
};

/// Runs the network on PlanOptions::calibration on the CPU. Returns, in execution order, the values selected by
/// `asked_for` (by name) that are finite in float32 but exceed float16's maximum. Errors as for Runner.
std::vector<BeyondRange> find_beyond_f16(const Model& model, const PlanOptions& options,
                                         const std::function<bool(std::string_view)>& asked_for);

/// Checks PlanOptions::calibration for a plan with these options. Error(unsupported) names the first value out of
/// range.
void check_calibration(const Model& model, const PlanOptions& options, const Plan& plan);

}  // namespace lenslet
