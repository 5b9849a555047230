// drop_identity: nodes that give their input back unchanged go: Identity, Dropout at inference, Reshape and Cast to the
// type that is there, Pad by nothing, Transpose that keeps the order.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/movement/pad.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

bool same_type(const Value& a, const Value& b) { return a.dtype == b.dtype && a.shape == b.shape; }

/// Output 0 has the elements of input 0 in the same order and type; nothing else is made that is read.
bool gives_input_back(const GraphEdit& edit, const Node& node) {
  const Graph& graph = edit.graph();
  if (node.inputs.empty() || node.inputs[0] == no_id || node.outputs.empty() || node.outputs[0] == no_id) return false;
  if (!same_type(graph.value(node.inputs[0]), graph.value(node.outputs[0]))) return false;
  const std::string_view type = node.type();
  if (type == "Transpose") {
    const auto perm = integers_attribute(*node.op, "perm");
    return perm && keeps_order(*perm, graph.value(node.inputs[0]).shape);
  }
  if (const auto* pad = dynamic_cast<const PadOp*>(node.op.get())) {
    const auto pads = pad->pads(graph.input_infos(node));  // equal shapes do not tell: one side may grow, one be cut
    return std::all_of(pads.begin(), pads.end(), [](std::int64_t count) { return count == 0; });
  }
  if (type == "Dropout") {
    const bool mask = node.outputs.size() > 1 && node.outputs[1] != no_id && edit.uses(node.outputs[1]) > 0;
    return !mask;
  }
  if (type == "Cast") return true;
  if ((type == "Concat" || type == "Sum" || type == "Max" || type == "Min" || type == "Mean") &&
      node.inputs.size() == 1)
    return true;
  return node.op->alias_input() == 0;  // Identity, Reshape, Flatten, Squeeze ...
}

}  // namespace

void drop_identity(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  std::vector<ValueId> stands_for(graph.values.size());
  for (std::size_t id = 0; id < stands_for.size(); ++id) stands_for[id] = static_cast<ValueId>(id);
  std::vector<bool> output_taken(graph.values.size(), false);
  for (const ValueId id : graph.outputs) output_taken[static_cast<std::size_t>(id)] = true;

  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    for (ValueId& input : node.inputs)
      if (input != no_id) input = stands_for[static_cast<std::size_t>(input)];
    if (gives_input_back(edit, node)) {
      const ValueId from = node.outputs[0], to = node.inputs[0];
      // A graph output keeps a producer and a value of its own.
      const bool to_has_producer = edit.producer(to) != no_id;
      if (edit.is_output(from)) {
        if (!to_has_producer || output_taken[static_cast<std::size_t>(to)]) continue;
        output_taken[static_cast<std::size_t>(to)] = true;
        std::swap(graph.value(from).name, graph.value(to).name);  // the output keeps its name
      }
      stands_for[static_cast<std::size_t>(from)] = to;
      node.op = nullptr;
    }
  }
  for (ValueId& output : graph.outputs) output = stands_for[static_cast<std::size_t>(output)];
  edit.finish();
}

}  // namespace lenslet
