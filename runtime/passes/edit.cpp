#include "runtime/passes/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace lenslet {

namespace {

std::size_t at(std::int32_t id) { return static_cast<std::size_t>(id); }

}  // namespace

GraphEdit::GraphEdit(Graph& graph)
    : graph_(graph), producers_(graph.producers()), uses_(graph.values.size(), 0), outputs_(graph.values.size()) {
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.inputs)
      if (id != no_id) ++uses_[at(id)];
  for (const ValueId id : graph.outputs) {
    ++uses_[at(id)];
    outputs_[at(id)] = true;
  }
}

const Node* GraphEdit::producer_node(ValueId id) const {
  const NodeId made_by = producer(id);
  return made_by == no_id ? nullptr : &graph_.node(made_by);
}

std::vector<NodeId> GraphEdit::nodes() const {
  std::vector<NodeId> ids(graph_.nodes.size());
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

const Node* GraphEdit::made_by(ValueId id, std::string_view type) const {
  const Node* const node = producer_node(id);
  return node != nullptr && node->type() == type ? node : nullptr;
}

void GraphEdit::replace(NodeId node, std::shared_ptr<const Op> op, std::vector<ValueId> inputs) {
  for (const ValueId id : inputs)
    if (id != no_id) ++uses_[at(id)];
  for (const ValueId id : graph_.node(node).inputs)
    if (id != no_id) --uses_[at(id)];
  graph_.node(node).op = std::move(op);
  graph_.node(node).inputs = std::move(inputs);
}

void GraphEdit::set_outputs(NodeId node, std::vector<ValueId> outputs) {
  for (const ValueId id : graph_.node(node).outputs)
    if (id != no_id) producers_[at(id)] = no_id;
  for (const ValueId id : outputs)
    if (id != no_id) producers_[at(id)] = node;
  graph_.node(node).outputs = std::move(outputs);
}

void GraphEdit::erase(NodeId node) {
  Node& erased = graph_.node(node);
  for (const ValueId id : erased.inputs)
    if (id != no_id) --uses_[at(id)];
  for (const ValueId id : erased.outputs)
    if (id != no_id && producers_[at(id)] == node) producers_[at(id)] = no_id;
  erased.op = nullptr;
  erased.inputs.clear();
  erased.outputs.clear();
}

void GraphEdit::erase_unread(ValueId id) {
  const auto unread = [&](ValueId value) { return value == no_id || uses(value) == 0; };
  std::vector<ValueId> values{id};
  while (!values.empty()) {
    const ValueId value = values.back();
    values.pop_back();
    const NodeId made_by = unread(value) ? producer(value) : no_id;
    if (made_by == no_id || !std::ranges::all_of(graph_.node(made_by).outputs, unread)) continue;
    const std::vector<ValueId> inputs = graph_.node(made_by).inputs;
    erase(made_by);
    values.insert(values.end(), inputs.begin(), inputs.end());
  }
}

ValueId GraphEdit::add_node(std::string name, std::shared_ptr<const Op> op, std::vector<ValueId> inputs) {
  Node node{.name = std::move(name), .op = nullptr, .inputs = inputs, .outputs = {}};
  const TensorType type = infer_types(*op, graph_.input_infos(node)).at(0);
  const ValueId id = graph_.add_value(node.name);
  graph_.value(id).dtype = type.dtype;
  graph_.value(id).shape = type.shape;
  graph_.value(id).typed = true;
  grow();
  node.inputs.clear();
  graph_.nodes.push_back(std::move(node));
  const auto added = static_cast<NodeId>(graph_.nodes.size() - 1);
  replace(added, std::move(op), std::move(inputs));
  set_outputs(added, {id});
  added_ = true;
  return id;
}

void GraphEdit::grow() {
  producers_.resize(graph_.values.size(), no_id);
  uses_.resize(graph_.values.size(), 0);
  outputs_.resize(graph_.values.size(), false);
}

ValueId GraphEdit::add_node(std::string name, std::shared_ptr<const Op> op, std::vector<ValueId> inputs,
                            DType file_type) {
  const ValueId id = add_node(std::move(name), std::move(op), std::move(inputs));
  graph_.value(id).file_type = file_type;
  return id;
}

ValueId GraphEdit::add_sizes(std::string name, std::span<const std::int64_t> sizes) {
  return add_constant(std::move(name), Tensor::of<std::int64_t>(Shape{std::ssize(sizes)}, sizes));
}

ValueId GraphEdit::add_constant(std::string name, Tensor tensor) {
  const ValueId id = graph_.add_constant(std::move(name), std::move(tensor));
  grow();
  return id;
}

ValueId GraphEdit::add_value_like(std::string name, const Value& model) {
  const TensorType type{model.dtype, model.shape};  // `model` may move when the value is added
  const DType file_type = model.file_type;
  const ValueId id = graph_.add_value(std::move(name));
  graph_.value(id).dtype = type.dtype;
  graph_.value(id).shape = type.shape;
  graph_.value(id).typed = true;
  graph_.value(id).file_type = file_type;
  grow();
  return id;
}

void GraphEdit::finish() {
  if (added_) {
    // Each node behind those that it reads, otherwise in the old order.
    std::vector<NodeId> order, stack = nodes();
    std::vector<bool> done(graph_.nodes.size());
    std::ranges::reverse(stack);
    while (!stack.empty()) {
      const NodeId next = stack.back();
      const std::size_t before = stack.size();
      if (!done[at(next)])
        for (const ValueId id : graph_.node(next).inputs)
          if (const NodeId above = producer(id); above != no_id && !done[at(above)]) stack.push_back(above);
      if (stack.size() > before) continue;
      stack.pop_back();
      if (!done[at(next)]) order.push_back(next);
      done[at(next)] = true;
    }
    std::vector<Node> sorted;
    for (const NodeId id : order) sorted.push_back(std::move(graph_.node(id)));
    graph_.nodes = std::move(sorted);
  }
  remove_erased(graph_);
}

void set_candidate(Node& node, Candidate candidate) {
  auto choice = std::make_shared<Choice>(*node.choice);
  choice->candidate = std::move(candidate);
  node.choice = std::move(choice);
}

void remove_erased(Graph& graph) {
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

std::optional<float> scalar_constant(const Graph& graph, ValueId id) {
  if (id == no_id) return std::nullopt;
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.dtype != DType::f32 || value.constant.elems() != 1) return std::nullopt;
  return value.constant.values<float>()[0];
}

}  // namespace lenslet
