// fold_batch_norm and fold_scale: y = factor[c] * x + offset[c] after a product is folded into its weights and bias.
// Only if x has no other reader; never forward through a convolution, since it would change the padding.
#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

void fold(GraphEdit& edit, NodeId id) {
  const Node& node = edit.graph().node(id);
  if (node.outputs.empty() || node.outputs[0] == no_id) return;
  const Value& y = edit.graph().value(node.outputs[0]);
  const std::vector<InputInfo> infos = edit.graph().input_infos(node);
  for (std::size_t side = 0; side < node.inputs.size(); ++side) {
    const ValueId x = node.inputs[side];
    const auto channels = affine_channels(edit, x);
    if (!channels || !(edit.graph().value(x).shape == y.shape)) continue;
    const auto affine = node.op->as_channel_affine(infos, side, y.shape);
    if (!affine || static_cast<std::int64_t>(affine->factor.size()) != *channels) continue;
    fold_affine(edit, id, x, *affine);
    return;
  }
}

void fold_all(Graph& graph, bool batch_norm) {
  GraphEdit edit(graph);
  for (const NodeId n : edit.nodes())
    if (!edit.erased(n) && (graph.node(n).type() == "BatchNormalization") == batch_norm) fold(edit, n);
  edit.finish();
}

}  // namespace

void fold_batch_norm(Graph& graph, const PassContext&) { fold_all(graph, true); }
void fold_scale(Graph& graph, const PassContext&) { fold_all(graph, false); }

}  // namespace lenslet
