// fold_batch_norm and fold_scale: y = factor[c] * x + offset[c] after a product, or after views and Concats of
// products (where c may be the last axis, as of tokens), is folded into its weights and bias, and a BatchNormalization
// that none precedes into those of the convolution behind it, unless that pads. Only what has no other reader.
#include "runtime/passes/affine_before_conv.h"
#include "runtime/passes/behind_moves.h"
#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

void fold_all(Graph& graph, bool batch_norm) {
  GraphEdit edit(graph);
  const auto is_batch_norm = [](const Node* node) { return node != nullptr && node->type() == "BatchNormalization"; };
  for (const NodeId n : edit.nodes()) {
    if (edit.erased(n)) continue;
    if (is_batch_norm(&graph.node(n)) == batch_norm && !fold_affine(edit, n)) fold_affine_behind_moves(edit, n);
    // Scales end activations that are spelled out, which are found later.
    while (batch_norm && is_batch_norm(edit.producer_node(input_of(graph.node(n), 0))) && fold_affine_before(edit, n)) {
    }
  }
  edit.finish();
}

}  // namespace

void fold_batch_norm(Graph& graph, const PassContext&) { fold_all(graph, true); }
void fold_scale(Graph& graph, const PassContext&) { fold_all(graph, false); }

}  // namespace lenslet
