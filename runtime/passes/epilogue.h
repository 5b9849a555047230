#pragma once
// Fuses the operators after a product into its epilogue.

#include "runtime/passes/edit.h"

namespace lenslet {

/// Whether arithmetic on float32 behind the product can still go into its epilogue.
inline bool takes_more(const Epilogue* epilogue) {
  return epilogue != nullptr && epilogue->open() && !epilogue->requantize;
}

/// Whether it is a product's, not that of a normalization, which has an activation or a residual alone.
inline bool of_product(const Epilogue* epilogue) {
  return epilogue != nullptr && epilogue->weight_input != Epilogue::no_input;
}

/// If `node` is an activation with constant bounds, and its input's producer has an epilogue without activation and no
/// other reader, fuses the two in `node`'s position. Transposes and views may lie between, read by nothing else.
void merge_activation(GraphEdit& edit, NodeId node);

/// Replaces `node` by `op` with `inputs`, under the name and note of `producer`, which is erased.
void merge_into(GraphEdit& edit, NodeId node, NodeId producer, std::shared_ptr<const Op> op,
                std::vector<ValueId> inputs);

}  // namespace lenslet
