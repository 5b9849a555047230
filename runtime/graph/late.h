#pragma once
// A network whose shapes follow in part from what it computes, cut in two: what can be planned beforehand, and what is
// planned when a run has come so far.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/infer_shapes.h"

namespace lenslet {

/// The second part. ValueIds are those of the graph that was cut.
struct LatePart {
  /// Where an output of the whole network comes from: one of the first part's, or of `graph`'s.
  struct Output {
    bool late = false;
    std::size_t index = 0;
  };
  std::vector<Output> outputs;
  /// By output of the first part: the value that it is.
  std::vector<ValueId> early_outputs;

  /// Nodes all of whose inputs decide their outputs' types (NonZero, NonMaxSuppression, Range): computed on the host
  /// between the two parts, in this order.
  std::vector<Node> on_host;
  /// The rest. Its inputs are values of the first part and outputs of `on_host`, with no ports yet, and it is to be
  /// planned when all their shapes are known; its outputs are the network's that the first part does not make.
  Graph graph;
  /// By input of `graph`: what it holds decides shapes (the target of a Reshape), so it must be known, too.
  std::vector<bool> planned_for_value;
  /// By node of `graph`: why it waits ("shape is computed from data ..."); empty for those that only follow.
  std::vector<std::string> reasons;

  /// Has `graph` a node of that name?
  bool plans(std::string_view node) const;
  /// Of a node of on_host: WholeOp::bounds(), where its inputs' types are known before the run; else nothing.
  std::vector<Shape> bounds(const Node& node) const;
};

/// Cuts `graph`, whose shapes are inferred but for `waiting` and what follows it. What the second part reads, and what
/// on_host does, becomes an output of `graph` behind those of its own that are left.
LatePart split_late(Graph& graph, const std::vector<WaitingNode>& waiting);

/// A port of that shape, nothing of it free.
PortInfo fixed_port(std::string name, DType dtype, const Shape& shape);

/// As Graph::dump(), to be put behind that of the first part.
std::string dump(const LatePart& late);

}  // namespace lenslet
