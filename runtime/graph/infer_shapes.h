#pragma once
// Concrete shapes for every value, and the values that are known because their inputs are.

#include <string>
#include <utility>
#include <vector>

#include "ops/core/kernel.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// Binds the declared inputs to concrete shapes: `batch` for dimension 0 where it is free or a declared 1 that may be
/// freed, `input_shapes` by name otherwise. Symbolic names are solved consistently. Error(invalid_argument) says which
/// input still has free dimensions, contradicts its declaration, or does not exist.
/// An input in `input_values` has that value from then on: its readers read a constant instead, which shares the given
/// tensor's memory. The input itself stays, unread.
void bind_inputs(Graph& graph, std::int64_t batch, const std::vector<std::pair<std::string, Shape>>& input_shapes,
                 const std::vector<std::pair<std::string, Tensor>>& input_values = {});

/// A node that waits for the run.
struct WaitingNode {
  NodeId node = no_id;
  /// Its inputs that decide the types of its outputs, by what they hold, and are not known.
  InputMask values = no_inputs;
  std::string reason;
};

/// Walks the nodes: infers output types, and evaluates nodes whose inputs are all constant and small shape arithmetic
/// (Shape of a value whose type is known counts as constant). One Error lists every node at fault. Nodes whose output
/// types follow from what the run computes are returned; their outputs, and those of all that follow, are not typed.
std::vector<WaitingNode> infer_known_shapes(Graph& graph);
/// The same where nothing can wait: each such node is at fault.
void infer_shapes(Graph& graph);

}  // namespace lenslet
