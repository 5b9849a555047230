#pragma once
// A Runner planned for given tensors: for their shapes, and for their values if shapes depend on them.

#include <span>

#include "lenslet/runner.h"

namespace lenslet::tool {

/// Plans `model` for `inputs`, given in its order. If the model cannot be planned otherwise, scalars and short lists
/// (sizes, axes, bounds) become PlanOptions::input_values.
Runner runner_for(const Model& model, std::span<const Tensor> inputs, PlanOptions options);

}  // namespace lenslet::tool
