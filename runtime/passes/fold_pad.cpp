// fold_pad: zeros that a node puts around the images become zeros that the convolutions which read it imagine.
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void fold_pad(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto imagined = node.op->imagined_zeros(graph.input_infos(node));
    const NodeId made_by = imagined ? edit.producer(node.inputs[0]) : no_id;
    if (made_by == no_id) continue;
    const auto added = graph.node(made_by).op->added_zeros(graph.input_infos(graph.node(made_by)));
    if (!added) continue;
    std::vector<std::int64_t> pads = *imagined;
    for (std::size_t i = 0; i < pads.size(); ++i) pads[i] += (*added)[i];
    std::vector<ValueId> inputs = node.inputs;
    const ValueId padded = std::exchange(inputs[0], graph.node(made_by).inputs[0]);
    edit.replace(static_cast<NodeId>(n), node.op->imagining_zeros(std::move(pads)), std::move(inputs));
    if (edit.uses(padded) == 0) edit.erase(made_by);
  }
  edit.finish();
}

}  // namespace lenslet
