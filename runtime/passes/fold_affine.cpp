// fold_batch_norm and fold_scale: y = factor[c] * x + offset[c] after a product is folded into its weights and bias.
// Only if x has no other reader; never forward through a convolution, since it would change the padding.
#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

void fold_all(Graph& graph, bool batch_norm) {
  GraphEdit edit(graph);
  for (const NodeId n : edit.nodes())
    if (!edit.erased(n) && (graph.node(n).type() == "BatchNormalization") == batch_norm) fold_affine(edit, n);
  edit.finish();
}

}  // namespace

void fold_batch_norm(Graph& graph, const PassContext&) { fold_all(graph, true); }
void fold_scale(Graph& graph, const PassContext&) { fold_all(graph, false); }

}  // namespace lenslet
