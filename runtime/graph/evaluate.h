#pragma once
// Runs one node outside any plan: for constants, and for tests.

#include <span>
#include <vector>

#include "ops/core/op.h"

namespace lenslet {

/// Results of `op` on `inputs` (empty() for an omitted one), in buffers of their own and layout nchw. `types` are what
/// op.infer() said. Workspace and preparation are made and dropped. Error as the op throws it.
std::vector<Tensor> evaluate(const Op& op, std::span<const Tensor> inputs, std::span<const TensorType> types,
                             ThreadPool& pool);

}  // namespace lenslet
