#pragma once
// If: one of two graphs, selected by a condition. It never becomes a step: shape inference replaces it by the nodes of
// the branch taken once the condition is known, before the run or, if it depends on data, during it (late.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class IfOp final : public Op {
 public:
  /// Each branch takes all the node's inputs after the condition and has as many outputs as the node.
  struct Branch {
    std::shared_ptr<const Graph> graph;
    /// Instead of a graph: why it cannot run; reported if it is taken.
    std::optional<Error> refusal = {};
  };
  IfOp(Branch then_branch, Branch else_branch) : then_(std::move(then_branch)), else_(std::move(else_branch)) {}

  std::string_view type() const override { return "If"; }
  /// NeedsValue for the condition; Error(internal) if it is known, since the node should have been replaced.
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;

  const Branch& branch(bool condition) const { return condition ? then_ : else_; }

 private:
  Branch then_, else_;
};

/// The nodes that replace `node`, an If with a known condition; adds their values to `graph`. Error with the branch's
/// refusal; Error(invalid_model) if the condition is not a single bool.
std::vector<Node> taken_branch(Graph& graph, const Node& node);

}  // namespace lenslet
