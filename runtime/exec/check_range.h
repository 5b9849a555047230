#pragma once
// Whether float16 holds what a network computes, on inputs like those to come: before it runs in float16.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/model.h"
#include "runtime/exec/plan.h"

namespace lenslet {

/// A value that float16 does not hold.
struct BeyondRange {
  std::string value;
  std::string step;    ///< that makes it: "conv1 (Conv)"; of an input of the network empty
  double largest = 0;  ///< its greatest magnitude
};

/// The values selected by name with `asked_for` that are finite in float32 but exceed float16's maximum, in the order
/// of computation. Runs the network on PlanOptions::calibration on the CPU. Errors as of a Runner.
std::vector<BeyondRange> find_beyond_f16(const Model& model, const PlanOptions& options,
                                         const std::function<bool(std::string_view)>& asked_for);

/// PlanOptions::calibration, for a plan made with these options. Error(unsupported) names what is beyond float16.
void check_calibration(const Model& model, const PlanOptions& options, const Plan& plan);

}  // namespace lenslet
