// fold_input_scale: constant factors and offsets by channels between an activation and the convolution that alone reads
// it go into its filters and bias (NFNets scale each activation). Runs when activations are found: spelled ones end in
// factors.
#include "runtime/passes/affine_before_conv.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void fold_input_scale(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  const auto scales = [&](NodeId id) {
    const Node* const node = edit.producer_node(input_of(graph.node(id), 0));
    return node != nullptr &&
           (node->type() == "Mul" || node->type() == "Div" || node->type() == "Add" || node->type() == "Sub");
  };
  for (const NodeId id : edit.nodes())
    while (!edit.erased(id) && scales(id) && fold_affine_before(edit, id)) {
    }
  edit.finish();
}

}  // namespace lenslet
