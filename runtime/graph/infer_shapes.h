#pragma once
// Shape inference: concrete shapes for every value, and constant evaluation.

#include <string>
#include <utility>
#include <vector>

#include "ops/core/kernel.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Binds the declared inputs to concrete shapes: `batch` for dimension 0 where it is free or a declared 1 that may be
/// freed, `input_shapes` by name otherwise. Symbolic names are solved consistently. Error(invalid_argument) says which
/// input still has free dimensions, contradicts its declaration, or does not exist. Readers of an input in
/// `input_values` read a constant instead, which shares the given tensor's memory. The input itself stays, unread.
void bind_inputs(Graph& graph, std::int64_t batch, const std::vector<std::pair<std::string, Shape>>& input_shapes,
                 const std::vector<std::pair<std::string, Tensor>>& input_values = {});

/// A node that waits for the run.
struct WaitingNode {
  NodeId node = no_id;
  /// Its unknown inputs whose values decide the types of its outputs.
  InputMask values = no_inputs;
  std::string reason;
};

/// Walks the nodes: infers output types, and evaluates nodes whose inputs are all constant and small shape arithmetic
/// (Shape of a value whose type is known counts as constant). One Error lists every node at fault. Returns the nodes
/// with data-dependent output types; their outputs and all values computed from them stay untyped.
std::vector<WaitingNode> infer_known_shapes(Graph& graph);
/// The same, but each such node is an error.
void infer_shapes(Graph& graph);

}  // namespace lenslet
