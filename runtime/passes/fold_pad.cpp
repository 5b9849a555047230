// fold_pad: folds a zero Pad into the padding of the convolutions that read it.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {

void fold_pad(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId n : edit.nodes()) {
    const Node& node = graph.node(n);
    if (node.op->epilogue() != nullptr && node.op->epilogue()->requantize) continue;  // it imagines x's zero point
    const auto imagined = node.op->imagined_zeros(graph.input_infos(node));
    const NodeId made_by = imagined ? edit.producer(node.inputs[0]) : no_id;
    if (made_by == no_id) continue;
    const auto added = graph.node(made_by).op->added_zeros(graph.input_infos(graph.node(made_by)));
    if (!added) continue;
    std::vector<std::int64_t> pads = *imagined;
    std::ranges::transform(pads, *added, pads.begin(), std::plus());
    std::vector<ValueId> inputs = node.inputs;
    const ValueId padded = std::exchange(inputs[0], graph.node(made_by).inputs[0]);
    edit.replace(n, node.op->imagining_zeros(std::move(pads)), std::move(inputs));
    if (edit.uses(padded) == 0) edit.erase(made_by);
  }
  edit.finish();
}

}  // namespace lenslet
