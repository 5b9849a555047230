#include "runtime/graph/output_op.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/graph/if_op.h"

namespace lenslet {

namespace {

// Exporters write probabilities in several ways: a one-class head as [1-p,p], a mean of several networks, a second
// division by the sum.

/// The number of leading inputs that an operator passes through: its outputs are their elements, converted, clipped or
/// averaged. 0: it computes new values.
std::size_t passed_on(const Node& node) {
  static const std::unordered_set<std::string_view> first{"Abs",
                                                          "AveragePool",
                                                          "Cast",
                                                          "CastLike",
                                                          "Clip",
                                                          "Compress",
                                                          "DepthToSpace",
                                                          "DequantizeLinear",
                                                          "Dropout",
                                                          "Expand",
                                                          "Gather",
                                                          "GatherElements",
                                                          "GatherND",
                                                          "GlobalAveragePool",
                                                          "GlobalMaxPool",
                                                          "MaxPool",
                                                          "Pad",
                                                          "QuantizeLinear",
                                                          "ReduceMax",
                                                          "ReduceMean",
                                                          "Relu",
                                                          "Resize",
                                                          "ReverseSequence",
                                                          "Slice",
                                                          "SpaceToDepth",
                                                          "Split",
                                                          "Tile",
                                                          "TopK",
                                                          "Transpose"};
  static const std::unordered_set<std::string_view> all{"Concat", "Max", "Mean", "Min"};
  if (node.op->alias_input() == 0 || first.contains(node.type())) return 1;
  return all.contains(node.type()) ? node.inputs.size() : 0;
}

/// The operator that computes each value, given those of the graph's inputs; "" for none or several. One pass, since
/// nodes are in topological order.
class Origins {
 public:
  /// For a sum of several shares, before division by their number.
  static constexpr std::string_view total = "sum of shares";

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
      std::vector<std::string_view> found;  // constants are bounds and padding
      for (std::size_t i = 0; i < count; ++i)
        if (const ValueId id = node.inputs[i]; id == no_id || !graph_.value(id).is_constant())
          found.push_back(of(node.inputs[i]));
      return found.empty() || std::ranges::count(found, found[0]) != std::ssize(found) ? "" : found[0];
    }
    if (node.type() == "Where") {
      const std::string_view a = of(node.inputs[1]), b = of(node.inputs[2]);
      return is_constant(node.inputs[1]) ? b : is_constant(node.inputs[2]) || a == b ? a : "";
    }
    if (node.type() == "Exp" && of(node.inputs[0]) == "LogSoftmax") return "Softmax";
    if (node.type() == "Log" && of(node.inputs[0]) == "Softmax") return "LogSoftmax";
    // Softmax spelled out (by PyTorch for any axis except the last, before opset 13), and other divisions by the own
    // sum.
    if (node.type() == "Div" && is_positive(of(node.inputs[0])) && is_sum_of(node.inputs[1], node.inputs[0]))
      return "Softmax";
    if (node.type() == "Mul")
      for (const auto& [x, factor] : both_ways(node))
        if (const Node* inverse = maker(factor); inverse != nullptr && inverse->type() == "Reciprocal" &&
                                                 is_positive(of(x)) && is_sum_of(inverse->inputs[0], x))
          return "Softmax";
    if (node.type() == "LpNormalization" && is_positive(of(node.inputs[0])) && integer_attribute(*node.op, "p") == 1)
      return "Softmax";
    if (node.type() == "Sub" && maker(node.inputs[1]) != nullptr && reduces(node.inputs[1], node.inputs[0], log_sums))
      return "LogSoftmax";
    return scaled(node);
  }

  /// Constant summands or factors that do not change what the values are.
  std::string_view scaled(const Node& node) const {
    constexpr double nothing = 1e-3;
    const auto all = [&](ValueId id, double value) {
      if (!is_constant(id) || graph_.value(id).dtype != DType::f32) return false;
      const auto values = graph_.value(id).constant.values<float>();
      return std::ranges::all_of(values, [&](float v) { return std::abs(double{v} - value) <= nothing; });
    };
    const bool sums = node.type() == "Add" || node.type() == "Sum";
    if ((node.type() == "Div" && all(node.inputs[0], 1)) || node.type() == "Reciprocal") {  // 1 / (1 + e^-x)
      const Node* sum = maker(node.inputs.back());
      if (sum != nullptr && sum->type() == "Add")
        for (const auto& [x, one] : both_ways(*sum))
          if (all(one, 1) && of(x) == "Exp") return "Sigmoid";
    }
    if (node.type() == "Sub" && all(node.inputs[0], 1) && is_share(of(node.inputs[1]))) return of(node.inputs[1]);
    if (sums && node.inputs.size() > 1 &&
        std::ranges::all_of(node.inputs, [&](ValueId id) { return is_share(of(id)); }))
      return total;
    if (node.inputs.size() == 2 && (sums || node.type() == "Mul"))
      for (const auto& [x, constant] : both_ways(node))
        if (all(constant, sums ? 0 : 1)) return of(x);
    if (node.inputs.size() == 2 &&
        ((node.type() == "Sub" && all(node.inputs[1], 0)) || (node.type() == "Div" && all(node.inputs[1], 1))))
      return of(node.inputs[0]);
    if (node.type() == "Mul" || node.type() == "Div")
      for (const auto& [x, constant] : both_ways(node))
        if (of(x) == total && is_constant(constant)) return "Softmax";
    return node.type();
  }

  static constexpr std::string_view log_sums[] = {"ReduceLogSumExp"}, sums_of[] = {"ReduceSum", "ReduceL1"};

  static bool is_share(std::string_view origin) {
    static constexpr std::string_view shares[] = {"Softmax", "Sigmoid", "HardSigmoid", "Hardmax"};
    return std::ranges::find(shares, origin) != std::end(shares);
  }
  static bool is_positive(std::string_view origin) {
    return is_share(origin) || origin == "Exp" || origin == "Softplus" || origin == total;
  }
  bool is_constant(ValueId id) const { return id != no_id && graph_.value(id).is_constant(); }
  const Node* maker(ValueId id) const {
    const NodeId node = id == no_id ? no_id : producers_[static_cast<std::size_t>(id)];
    return node == no_id ? nullptr : &graph_.node(node);
  }
  static std::array<std::pair<ValueId, ValueId>, 2> both_ways(const Node& node) {
    return {std::pair{node.inputs[0], node.inputs.back()}, std::pair{node.inputs.back(), node.inputs[0]}};
  }

  bool is_sum_of(ValueId sum, ValueId terms) const { return reduces(sum, terms, sums_of); }
  /// Whether it is a reduction of `terms`, perhaps reshaped or with an epsilon added.
  bool reduces(ValueId sum, ValueId terms, std::span<const std::string_view> kinds) const {
    constexpr int most_steps = 4;
    for (int step = 0; step < most_steps; ++step) {
      const Node* node = maker(sum);
      if (node == nullptr) return false;
      if (std::ranges::find(kinds, node->type()) != kinds.end()) return node->inputs[0] == terms;
      const bool little = node->type() == "Add" || node->type() == "Max" || node->type() == "Clip";
      if (!little && node->op->alias_input() != 0 && node->type() != "Expand") return false;
      sum = is_constant(node->inputs[0]) ? node->inputs.back() : node->inputs[0];
    }
    return false;
  }

  /// The result common to all branches that can run.
  std::vector<std::string_view> of_branches(const IfOp& choice, const Node& node) const {
    std::vector<std::string_view> inputs, made;
    for (std::size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(of(node.inputs[i]));
    bool first = true;
    const bool known = is_constant(node.inputs[0]) && graph_.value(node.inputs[0]).dtype == DType::boolean &&
                       graph_.value(node.inputs[0]).constant.elems() == 1;
    for (const bool condition : {true, false}) {
      if (known && graph_.value(node.inputs[0]).constant.values<bool>()[0] != condition) continue;
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
  const std::string_view origin = Origins(graph, {}).of(graph.outputs[index]);
  return origin == Origins::total ? "Sum" : std::string(origin);
}

}  // namespace lenslet
