// drop_identity: removes nodes that return their input unchanged: Identity, Dropout at inference, Reshape and Cast to
// the same type, Pad by nothing, Transpose that keeps the order, Slice of everything, Gather of all in order ...
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// Output 0 equals input 0, and no other output is read.
bool gives_input_back(const GraphEdit& edit, const Node& node) {
  if (input_of(node, 0) == no_id || !has_result(node)) return false;
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] != no_id && edit.uses(node.outputs[i]) > 0) return false;
  return node.op->gives_input_back(edit.graph().input_infos(node));
}

}  // namespace

void drop_identity(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  std::vector<ValueId> stands_for(graph.values.size());
  std::iota(stands_for.begin(), stands_for.end(), ValueId{0});
  std::vector<bool> output_taken(graph.values.size(), false);
  for (const ValueId id : graph.outputs) output_taken[static_cast<std::size_t>(id)] = true;

  for (Node& node : graph.nodes) {
    for (ValueId& input : node.inputs)
      if (input != no_id) input = stands_for[static_cast<std::size_t>(input)];
    if (gives_input_back(edit, node)) {
      const ValueId from = node.outputs[0], to = node.inputs[0];
      // A graph output keeps its own producer and value.
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
