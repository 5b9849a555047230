#pragma once
// A Runner planned for given tensors: their shapes, and their values where shapes depend on them.

#include <span>

#include "lenslet/runner.h"

namespace lenslet::tool {

/// Plans `model` for `inputs`, which are in its order. Scalars and short lists among them (sizes, axes, bounds) become
/// PlanOptions::input_values when the model cannot be planned without.
Runner runner_for(const Model& model, std::span<const Tensor> inputs, PlanOptions options);

}  // namespace lenslet::tool
