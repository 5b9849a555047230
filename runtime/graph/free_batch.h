#pragma once
// Frees a batch of 1 that an exporter baked into a model, where the operators allow it.

#include <span>

#include "runtime/graph/graph.h"

namespace lenslet {

/// An input whose declared dimension 0 is 1 and is to become `batch`.
struct FreedInput {
  ValueId id = no_id;
  Shape declared;
};

/// `graph` has its inputs bound to the wanted shapes; its other values need no types. Follows the images from the freed
/// inputs through every node, in whatever dimension they lie. Where a literal says 1 image (the target of a Reshape, a
/// constant that a Concat joins to the image, the state of an LSTM), the node gets a literal of its own for `batch`.
/// Nodes that would mix images, or are not known to keep them apart, are refused: one Error(unsupported) lists each,
/// "node fc (Reshape): bakes in batch 1 ...".
void free_batch(Graph& graph, std::span<const FreedInput> freed, std::int64_t batch);

}  // namespace lenslet
