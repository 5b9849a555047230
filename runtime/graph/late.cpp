#include "runtime/graph/late.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ops/core/whole_op.h"

namespace lenslet {
namespace {

// Whether the host can compute the node between plan segments: all values that decide its outputs are then known.
bool for_host(const Graph& graph, const Node& node, InputMask values) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] != no_id && !graph.value(node.inputs[i]).is_constant() && (values & input_bit(i)) == 0)
      return false;
  return !kernels_of(node.type(), DeviceKind::cpu).empty();
}

void add_once(std::vector<ValueId>& list, ValueId id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

}  // namespace

LatePart split_late(Graph& graph, const std::vector<WaitingNode>& waiting) {
  std::unordered_map<NodeId, const WaitingNode*> waits;
  for (const WaitingNode& wait : waiting) waits.emplace(wait.node, &wait);
  const auto typed = [&](ValueId id) { return id == no_id || graph.value(id).typed; };

  LatePart late;
  late.graph = graph;
  late.graph.nodes.clear();
  std::vector<Node> early;
  std::vector<bool> made_by_host(graph.values.size(), false), decides(graph.values.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    const auto wait = waits.find(static_cast<NodeId>(n));
    if (wait == waits.end()) {
      const bool follows = !std::all_of(node.inputs.begin(), node.inputs.end(), typed);
      if (follows) late.reasons.emplace_back();
      (follows ? late.graph.nodes : early).push_back(std::move(node));
    } else if (for_host(graph, node, wait->second->values)) {
      for (const ValueId id : node.outputs)
        if (id != no_id) made_by_host[static_cast<std::size_t>(id)] = true;
      late.on_host.push_back(std::move(node));
    } else {
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != no_id && (wait->second->values & input_bit(i)) != 0)
          decides[static_cast<std::size_t>(node.inputs[i])] = true;
      late.graph.nodes.push_back(std::move(node));
      late.reasons.push_back(wait->second->reason);
    }
  }
  graph.nodes = std::move(early);

  // Values that the second part reads: constants of this one, or made in between.
  std::vector<ValueId> inputs;
  const auto arrives = [&](ValueId id) {
    return id != no_id && !graph.value(id).is_constant() &&
           (graph.value(id).typed || made_by_host[static_cast<std::size_t>(id)]);
  };
  for (const Node& node : late.graph.nodes)
    for (const ValueId id : node.inputs)
      if (arrives(id)) add_once(inputs, id);
  std::vector<ValueId> early_outputs, late_outputs;
  std::vector<PortInfo> early_ports, late_ports;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const ValueId id = graph.outputs[i];
    const bool is_early = graph.value(id).typed;
    late.outputs.push_back({!is_early, is_early ? early_outputs.size() : late_outputs.size()});
    (is_early ? early_outputs : late_outputs).push_back(id);
    (is_early ? early_ports : late_ports).push_back(graph.output_ports[i]);
    if (made_by_host[static_cast<std::size_t>(id)]) add_once(inputs, id);
  }
  late.graph.inputs = inputs;
  late.graph.input_ports.clear();
  late.graph.outputs = std::move(late_outputs);
  late.graph.output_ports = std::move(late_ports);
  for (const ValueId id : inputs) late.planned_for_value.push_back(decides[static_cast<std::size_t>(id)]);

  const auto hand_over = [&](ValueId id) {
    if (!arrives(id) || made_by_host[static_cast<std::size_t>(id)]) return;
    if (std::find(early_outputs.begin(), early_outputs.end(), id) != early_outputs.end()) return;
    early_outputs.push_back(id);
    const Value& value = graph.value(id);
    early_ports.push_back(fixed_port(value.name, value.dtype, value.shape));
  };
  for (const ValueId id : inputs) hand_over(id);
  for (const Node& node : late.on_host)
    for (const ValueId id : node.inputs) hand_over(id);
  graph.outputs = early_outputs;
  late.early_outputs = std::move(early_outputs);
  graph.output_ports = std::move(early_ports);

  // Drops the other part's constants.
  std::vector<bool> read(graph.values.size(), false);
  const auto mark = [&](const std::vector<ValueId>& ids) {
    for (const ValueId id : ids)
      if (id != no_id) read[static_cast<std::size_t>(id)] = true;
  };
  mark(late.graph.outputs);
  for (const Node& node : late.graph.nodes) mark(node.inputs);
  for (const Node& node : late.on_host) mark(node.inputs);
  for (std::size_t v = 0; v < read.size(); ++v)
    if (!read[v] && late.graph.values[v].is_constant()) late.graph.values[v].constant = Tensor();
  return late;
}

bool LatePart::plans(std::string_view node) const {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& one) { return one.name == node; });
}

std::vector<Shape> LatePart::bounds(const Node& node) const {
  const auto* const whole = dynamic_cast<const WholeOp*>(node.op.get());
  const bool typed = std::ranges::all_of(
      node.inputs, [&](ValueId id) { return id == no_id || graph.value(id).is_constant() || graph.value(id).typed; });
  if (whole == nullptr || !typed) return {};
  return whole->bounds(graph.input_infos(node));
}

PortInfo fixed_port(std::string name, DType dtype, const Shape& shape) {
  PortInfo port;
  port.name = std::move(name);
  port.dtype = dtype;
  port.dims.assign(shape.dims().begin(), shape.dims().end());
  port.dim_names.resize(port.dims.size());
  return port;
}

std::string dump(const LatePart& late) {
  Graph on_host = late.graph;
  on_host.nodes = late.on_host;
  on_host.inputs.clear();
  on_host.outputs.clear();
  std::string text;
  if (!late.on_host.empty()) text += "on the host, in between:\n" + on_host.dump();
  return text + "planned in the run, when shapes are known:\n" + late.graph.dump();
}

}  // namespace lenslet
