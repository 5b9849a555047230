#pragma once
// Merging what follows a Conv or Gemm into its epilogue.

#include "runtime/passes/edit.h"

namespace lenslet {

/// If `node` is an activation with known bounds, and the Conv or Gemm that makes its input has no other reader and no
/// activation yet, merges the two: the merged node stands where `node` stood. False when nothing changed.
bool merge_activation(GraphEdit& edit, NodeId node);

/// Puts `op` with `inputs` in the place of `node`, under the name of `producer`, which is erased.
void merge_into(GraphEdit& edit, NodeId node, NodeId producer, std::shared_ptr<const Op> op,
                std::vector<ValueId> inputs);

}  // namespace lenslet
