#include "runtime/graph/if_op.h"

#include <fmt/format.h>

#include <utility>

#include "ops/core/checks.h"
#include "ops/core/needs_value.h"

namespace lenslet {

std::vector<TensorType> IfOp::infer(std::span<const InputInfo> inputs) const {
  static_cast<void>(required_input(inputs, 0, "cond"));
  static_cast<void>(known_value(inputs, 0, "cond"));
  throw Error(ErrorKind::internal, "an If of a known condition is left");
}

std::vector<Node> taken_branch(Graph& graph, const Node& node) {
  const Tensor condition = graph.value(node.inputs[0]).constant;
  if (condition.dtype() != DType::boolean || condition.elems() != 1)
    throw Error(ErrorKind::invalid_model,
                fmt::format("cond must be one bool, not {} {}", to_string(condition.dtype()), condition.shape().str()));
  const bool taken = condition.values<bool>()[0];
  const IfOp::Branch& branch = static_cast<const IfOp&>(*node.op).branch(taken);
  if (branch.refusal) throw branch.refusal->within(taken ? "then_branch" : "else_branch");

  const Graph& inner = *branch.graph;
  std::vector<ValueId> ids(inner.values.size(), no_id);
  for (std::size_t i = 0; i < inner.inputs.size(); ++i)
    ids[static_cast<std::size_t>(inner.inputs[i])] = node.inputs[i + 1];
  const auto outer = [&](ValueId id) {
    if (id == no_id) return no_id;
    ValueId& known = ids[static_cast<std::size_t>(id)];
    if (known == no_id) {
      const Value& value = inner.value(id);
      const std::string name = fmt::format("{}/{}", node.name, value.name);
      known = value.is_constant() ? graph.add_constant(name, value.constant) : graph.add_value(name);
      graph.value(known).file_type = value.file_type;
    }
    return known;
  };
  std::vector<Node> nodes;
  for (const Node& one : inner.nodes) {
    Node& placed = nodes.emplace_back(one);
    placed.name = fmt::format("{}/{}", node.name, one.name);
    for (ValueId& id : placed.inputs) id = outer(id);
    for (ValueId& id : placed.outputs) id = outer(id);
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == no_id) continue;
    Node& result = nodes.emplace_back();
    result.name = fmt::format("{}/output{}", node.name, i);
    result.op = make_normalised_op("Identity", {}, 1);
    result.inputs = {outer(inner.outputs[i])};
    result.outputs = {node.outputs[i]};
  }
  return nodes;
}

}  // namespace lenslet
