#pragma once
// Runs one node outside any plan: for constants, and for tests.

#include <memory>
#include <span>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// What is known of inputs that are: all of it.
std::vector<InputInfo> infos_of(std::span<const Tensor> inputs);

/// Results of `op` on `inputs` (empty() for an omitted one; format nchw), in buffers of their own and format nchw, by
/// the first CPU kernel that takes them so. `types` are what op.infer() said. Workspace and blob are made and dropped.
/// Error as the kernel throws it; Error(unsupported) when no kernel takes them.
std::vector<Tensor> evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                             std::span<const TensorType> types, ThreadPool& pool);
/// The same with the types inferred, and all that `op` checks of its inputs. What a WholeOp infers is computed once.
std::vector<Tensor> infer_and_evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                                       ThreadPool& pool);

}  // namespace lenslet
