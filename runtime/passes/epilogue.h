#pragma once
// Merging what follows a product into its epilogue.

#include "runtime/passes/edit.h"

namespace lenslet {

/// If `node` is an activation with known bounds, and what makes its input has an epilogue without one and no other
/// reader, merges the two: the merged node stands where `node` stood.
void merge_activation(GraphEdit& edit, NodeId node);

/// Puts `op` with `inputs` in the place of `node`, under the name of `producer`, which is erased.
void merge_into(GraphEdit& edit, NodeId node, NodeId producer, std::shared_ptr<const Op> op,
                std::vector<ValueId> inputs);

}  // namespace lenslet
