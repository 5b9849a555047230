// fuse_residual: the Add of a residual block, and the activation after it, move into the epilogue of the last
// convolution before it.
#include <algorithm>
#include <utility>

#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// The epilogue of the producer of `id`, if it can add a residual and `id` has no other reader; else null.
const Epilogue* open_epilogue(const GraphEdit& edit, ValueId id) {
  if (!edit.merges(id)) return nullptr;
  const Node* made_by = edit.producer_node(id);
  const Epilogue* epilogue = made_by->op->epilogue();
  if (!takes_more(epilogue) || epilogue->residual_input == Epilogue::no_input) return nullptr;
  const auto residual = static_cast<std::size_t>(epilogue->residual_input);
  return input_of(*made_by, residual) == no_id ? epilogue : nullptr;
}

bool is_sum_of_equals(const Graph& graph, const Node& node) {
  if ((node.type() != "Add" && node.type() != "Sum") || node.inputs.size() != 2) return false;
  return std::ranges::all_of(node.inputs, [&](ValueId id) {
    return !graph.value(id).is_constant() && graph.value(id).shape == graph.value(node.outputs[0]).shape;
  });
}

bool merge_sum(GraphEdit& edit, NodeId id) {
  const Node& node = edit.graph().node(id);
  if (!is_sum_of_equals(edit.graph(), node)) return false;
  const Epilogue* const sides[2] = {open_epilogue(edit, node.inputs[0]), open_epilogue(edit, node.inputs[1])};
  if (sides[0] == nullptr && sides[1] == nullptr) return false;
  // Of two products the later one adds the other's result, which is complete by then.
  const bool second =
      sides[0] == nullptr || (sides[1] != nullptr && edit.producer(node.inputs[1]) > edit.producer(node.inputs[0]));
  const auto residual_input = static_cast<std::size_t>(sides[second ? 1 : 0]->residual_input);
  const ValueId product = node.inputs[second ? 1 : 0], residual = node.inputs[second ? 0 : 1];
  const NodeId producer = edit.producer(product);
  std::vector<ValueId> inputs = edit.graph().node(producer).inputs;
  inputs.resize(std::max(inputs.size(), residual_input + 1), no_id);
  inputs[residual_input] = residual;
  merge_into(edit, id, producer, edit.graph().node(producer).op, std::move(inputs));
  return true;
}

/// Whether `node` already has a residual.
bool adds_residual(const Node& node) {
  const Epilogue* epilogue = node.op->epilogue();
  return epilogue != nullptr && input_of(node, static_cast<std::size_t>(epilogue->residual_input)) != no_id;
}

}  // namespace

void fuse_residual(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId id : edit.nodes()) {
    if (edit.erased(id) || merge_sum(edit, id)) continue;
    // The activation after a newly fused Add.
    const Node* made_by = edit.producer_node(input_of(graph.node(id), 0));
    if (made_by != nullptr && adds_residual(*made_by)) merge_activation(edit, id);
  }
  edit.finish();
}

}  // namespace lenslet
