#pragma once
// Splits a network with data-dependent shapes in two: the part planned beforehand, and the part planned during a run.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/infer_shapes.h"

namespace lenslet {

/// The second part, with the ValueIds of the original graph.
struct LatePart {
  /// Source of a network output: an output of the first part, or of `graph`.
  struct Output {
    bool late = false;
    std::size_t index = 0;
  };
  std::vector<Output> outputs;
  /// By output of the first part: its value.
  std::vector<ValueId> early_outputs;

  /// Operators with data-dependent output shapes (NonZero, NonMaxSuppression, Range). The host runs them between the
  /// two parts, in this order.
  std::vector<Node> on_host;
  /// The rest, planned when the shapes of all its inputs are known. Inputs: values of the first part and outputs of
  /// `on_host`, without ports yet. Outputs: those of the network that the first part does not compute.
  Graph graph;
  /// By input of `graph`: whether its value decides shapes (the target of a Reshape) and so must be known as well.
  std::vector<bool> planned_for_value;
  /// By node of `graph`: why it is late ("shape is computed from data ..."); empty if only its inputs are.
  std::vector<std::string> reasons;

  /// Whether `graph` has a node of that name.
  bool plans(std::string_view node) const;
  /// WholeOp::bounds() of a node of on_host if its inputs' types are known before the run; else empty.
  std::vector<Shape> bounds(const Node& node) const;
};

/// Splits `graph`, whose shapes are inferred except for `waiting` and nodes after it. Values read by the second part or
/// on_host become outputs of `graph`, after its own remaining ones.
LatePart split_late(Graph& graph, const std::vector<WaitingNode>& waiting);

/// A port with that fixed shape.
PortInfo fixed_port(std::string name, DType dtype, const Shape& shape);

/// As Graph::dump(), to append to that of the first part.
std::string dump(const LatePart& late);

}  // namespace lenslet
