#pragma once
// All values of a run, by name.

#include <functional>
#include <span>
#include <string>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct ObservedValue {
  std::string name, node, op;  ///< node and op: the step that computes it; empty for an output without a step
  Tensor tensor;               ///< a copy, layout nchw
};

/// Runs and passes each value to `see` when it is computed: the results of steps and outputs without a step, but not
/// copies in another layout. If an output is such a copy, `see` gets the original under the output's name. Returns the
/// outputs, like Runner::run().
std::span<const Tensor> observe_values(Runner& runner, const Model& model, std::span<const Tensor> inputs,
                                       const std::function<void(ObservedValue)>& see);

}  // namespace lenslet::tool
