#include "runtime/graph/output_op.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/graph/if_op.h"

namespace lenslet {

namespace {

/// How many of its first inputs the numbers of an operator's outputs come from: each is one of theirs, in another type
/// or cut off, or a mean of some. 0: it makes new ones.
std::size_t passed_on(const Node& node) {
  static const std::unordered_set<std::string_view> first{
      "AveragePool",       "Cast",          "CastLike",     "Clip",           "Compress",       "DepthToSpace",
      "DequantizeLinear",  "Dropout",       "Expand",       "Gather",         "GatherElements", "GatherND",
      "GlobalAveragePool", "GlobalMaxPool", "MaxPool",      "QuantizeLinear", "ReduceMax",      "ReduceMean",
      "ReverseSequence",   "Slice",         "SpaceToDepth", "Split",          "Tile",           "Transpose"};
  static const std::unordered_set<std::string_view> all{"Concat", "Max", "Mean", "Min"};
  if (node.op->alias_input() == 0 || first.contains(node.type())) return 1;
  return all.contains(node.type()) ? node.inputs.size() : 0;
}

/// The operator that each value comes from, given those of the graph's inputs; "" of none and of several. Nodes are in
/// order, so that one walk does it, however long a chain is.
class Origins {
 public:
  Origins(const Graph& graph, const std::vector<std::string_view>& of_inputs)
      : graph_(graph), producers_(graph.producers()), origins_(graph.values.size()) {
    for (std::size_t i = 0; i < of_inputs.size(); ++i) at(graph.inputs[i]) = of_inputs[i];
    for (const Node& node : graph.nodes) visit(node);
  }

  std::string_view of(ValueId id) const { return id == no_id ? std::string_view() : origins_[std::size_t(id)]; }

 private:
  std::string_view& at(ValueId id) { return origins_[static_cast<std::size_t>(id)]; }

  void visit(const Node& node) {
    const auto* choice = dynamic_cast<const IfOp*>(node.op.get());
    std::vector<std::string_view> made(node.outputs.size(), choice == nullptr ? origin(node) : std::string_view());
    if (choice != nullptr) made = of_branches(*choice, node);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != no_id) at(node.outputs[i]) = made[i];
  }

  std::string_view origin(const Node& node) const {
    if (const std::size_t count = passed_on(node); count > 0) {
      std::vector<std::string_view> found;  // constants stand for bounds and padding
      for (std::size_t i = 0; i < count; ++i)
        if (const ValueId id = node.inputs[i]; id == no_id || !graph_.value(id).is_constant())
          found.push_back(of(node.inputs[i]));
      return found.empty() || std::ranges::count(found, found[0]) != std::ssize(found) ? "" : found[0];
    }
    // Softmax as exporters spell it (PyTorch's for any axis but the last, before opset 13).
    if (node.type() == "Div" && of(node.inputs[0]) == "Exp" && is_sum_of(node.inputs[1], node.inputs[0]))
      return "Softmax";
    if (node.type() == "Exp" && of(node.inputs[0]) == "LogSoftmax") return "Softmax";
    if (node.type() == "Log" && of(node.inputs[0]) == "Softmax") return "LogSoftmax";
    return node.type();
  }

  bool is_sum_of(ValueId sum, ValueId terms) const {
    const NodeId maker = sum == no_id ? no_id : producers_[static_cast<std::size_t>(sum)];
    if (maker == no_id) return false;
    const Node& node = graph_.node(maker);
    return (node.type() == "ReduceSum" || node.type() == "ReduceL1") && node.inputs[0] == terms;
  }

  /// What both branches agree on, of those that can run.
  std::vector<std::string_view> of_branches(const IfOp& choice, const Node& node) const {
    std::vector<std::string_view> inputs, made;
    for (std::size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(of(node.inputs[i]));
    bool first = true;
    for (const bool condition : {true, false}) {
      const Graph* branch = choice.branch(condition).graph.get();
      if (branch == nullptr) continue;
      const Origins origins(*branch, inputs);
      made.resize(node.outputs.size());
      for (std::size_t i = 0; i < made.size(); ++i) {
        const std::string_view found = i < branch->outputs.size() ? origins.of(branch->outputs[i]) : "";
        made[i] = first || made[i] == found ? found : "";
      }
      first = false;
    }
    made.resize(node.outputs.size());
    return made;
  }

  const Graph& graph_;
  const std::vector<NodeId> producers_;
  std::vector<std::string_view> origins_;
};

}  // namespace

std::string output_op(const Graph& graph, std::size_t index) {
  return std::string(Origins(graph, {}).of(graph.outputs[index]));
}

}  // namespace lenslet
