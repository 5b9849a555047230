// fuse_residual: the Add of a residual block, and the activation after it, move into the epilogue of the convolution
// that comes last before it.
#include <memory>
#include <utility>

#include "ops/conv/conv.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

constexpr std::size_t residual_input = 3;

/// The convolution that makes `id` and could add something to it before anyone looks; else null.
const ConvOp* open_conv(const GraphEdit& edit, ValueId id) {
  if (!edit.merges(id)) return nullptr;
  const Node* made_by = edit.producer_node(id);
  const auto* conv = dynamic_cast<const ConvOp*>(made_by->op.get());
  if (conv == nullptr || conv->activation.kind != Activation::Kind::none) return nullptr;
  if (made_by->inputs.size() > residual_input && made_by->inputs[residual_input] != no_id) return nullptr;
  return conv;
}

bool is_sum_of_equals(const Graph& graph, const Node& node) {
  if ((node.type() != "Add" && node.type() != "Sum") || node.inputs.size() != 2) return false;
  const Value& sum = graph.value(node.outputs[0]);
  if (sum.dtype != DType::f32) return false;
  for (const ValueId id : node.inputs)
    if (id == no_id || graph.value(id).is_constant() || !(graph.value(id).shape == sum.shape)) return false;
  return true;
}

bool merge_sum(GraphEdit& edit, NodeId id) {
  const Node& node = edit.graph().node(id);
  if (!is_sum_of_equals(edit.graph(), node)) return false;
  const ConvOp* const convs[2] = {open_conv(edit, node.inputs[0]), open_conv(edit, node.inputs[1])};
  if (convs[0] == nullptr && convs[1] == nullptr) return false;
  // Of two convolutions the later one takes the other's result, which is complete by then.
  const bool second =
      convs[0] == nullptr || (convs[1] != nullptr && edit.producer(node.inputs[1]) > edit.producer(node.inputs[0]));
  const ValueId product = node.inputs[second ? 1 : 0], residual = node.inputs[second ? 0 : 1];
  const NodeId producer = edit.producer(product);
  std::vector<ValueId> inputs = edit.graph().node(producer).inputs;
  inputs.resize(residual_input + 1, no_id);
  inputs[residual_input] = residual;
  merge_into(edit, id, producer, std::make_shared<ConvOp>(*convs[second ? 1 : 0]), std::move(inputs));
  return true;
}

}  // namespace

void fuse_residual(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto id = static_cast<NodeId>(n);
    if (edit.erased(id) || merge_sum(edit, id)) continue;
    // The activation of a sum that has just been merged.
    const ValueId x = graph.nodes[n].inputs.empty() ? no_id : graph.nodes[n].inputs[0];
    const Node* made_by = x == no_id ? nullptr : edit.producer_node(x);
    if (made_by != nullptr && made_by->type() == "Conv" && made_by->inputs.size() > residual_input)
      merge_activation(edit, id);
  }
  edit.finish();
}

}  // namespace lenslet
