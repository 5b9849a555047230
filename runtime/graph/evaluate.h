#pragma once
// Evaluates one node outside any plan, for constants and tests.

#include <memory>
#include <span>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// The input infos of fully known inputs.
std::vector<InputInfo> infos_of(std::span<const Tensor> inputs);

/// Results of `op` on `inputs` (nchw; empty() for an omitted one), in their own buffers, nchw, by the first CPU kernel
/// that accepts them. `types` come from op.infer(). Workspace and blob are temporary. Errors as thrown by the kernel;
/// Error(unsupported) if no kernel accepts them.
std::vector<Tensor> evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                             std::span<const TensorType> types, ThreadPool& pool);
/// The same, with types inferred and inputs checked by `op`. A WholeOp is computed only once.
std::vector<Tensor> infer_and_evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                                       ThreadPool& pool);

}  // namespace lenslet
