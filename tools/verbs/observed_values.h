#pragma once
// All values of a run, by name.

#include <functional>
#include <span>
#include <string>

#include "lenslet/runner.h"

namespace lenslet::tool {

struct ObservedValue {
  std::string name, node, op;  ///< node and op: what made it; empty for an output that no step makes
  Tensor tensor;               ///< a copy, layout nchw
};

/// Runs, and gives each value to `see` when it is made: what the steps make, but not copies of it in another layout (of
/// an output that is one, the original, by the output's name), and outputs that no step makes. Returns the outputs, as
/// Runner::run().
std::span<const Tensor> observe_values(Runner& runner, const Model& model, std::span<const Tensor> inputs,
                                       const std::function<void(ObservedValue)>& see);

}  // namespace lenslet::tool
