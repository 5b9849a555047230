#pragma once
// If: one of two graphs, by a condition. It is no step of a plan: shape inference puts the nodes of the branch taken in
// its place as soon as the condition is known, which is before the run or, where it depends on data, in it (late.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "runtime/graph/graph.h"

namespace lenslet {

class IfOp final : public Op {
 public:
  /// Its inputs are the node's behind the condition, all of them in both branches; as many outputs as the node has.
  struct Branch {
    std::shared_ptr<const Graph> graph;
    /// Instead of a graph: why it cannot run, said where it is taken.
    std::optional<Error> refusal = {};
  };
  IfOp(Branch then_branch, Branch else_branch) : then_(std::move(then_branch)), else_(std::move(else_branch)) {}

  std::string_view type() const override { return "If"; }
  /// NeedsValue of the condition, or Error(internal): a node with a known one has been replaced.
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;

  const Branch& branch(bool condition) const { return condition ? then_ : else_; }

 private:
  Branch then_, else_;
};

/// The nodes that stand in place of `node`, an If of a known condition, whose values are added to `graph`. Error as the
/// branch's refusal; Error(invalid_model) for a condition that is no single bool.
std::vector<Node> taken_branch(Graph& graph, const Node& node);

}  // namespace lenslet
