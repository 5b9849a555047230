// find_shuffles: Reshape to groups of channels, Transpose of the two, Reshape back is one ChannelShuffle, which works
// in nhwc as the convolutions around it do.
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// What a Reshape that renames bytes reads, when only `reader` sees its result; else no_id.
ValueId renamed(const GraphEdit& edit, ValueId id) {
  if (id == no_id || !edit.merges(id)) return no_id;
  const Node& node = *edit.producer_node(id);
  return node.op->alias_input() == 0 ? node.inputs[0] : no_id;
}

/// Of a Transpose from [N,G,C/G,...] to [N,C/G,G,...], what follows keeping its order: G; else 0.
std::int64_t swapped_groups(const Graph& graph, const Node& node) {
  if (node.type() != "Transpose") return 0;
  const auto perm = attribute<std::vector<std::int64_t>>(*node.op, "perm");
  if (!perm || perm->size() < 4) return 0;
  for (std::size_t i = 0; i < perm->size(); ++i)
    if ((*perm)[i] != (i == 1 ? 2 : i == 2 ? 1 : static_cast<std::int64_t>(i))) return 0;
  return graph.value(node.inputs[0]).shape[1];
}

/// Is `grouped` [N,G,C/G,...] the image `x` [N,C,H,W] with its channels in groups?
bool groups_of(const Shape& grouped, const Shape& x) {
  if (x.rank() != 4 || grouped[0] != x[0] || grouped[1] * grouped[2] != x[1]) return false;
  if (grouped.rank() == 4) return grouped[3] == x[2] * x[3];
  return grouped.rank() == 5 && grouped[3] == x[2] && grouped[4] == x[3];
}

}  // namespace

void find_shuffles(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto last = static_cast<NodeId>(n);
    if (edit.erased(last) || graph.nodes[n].op->alias_input() != 0) continue;
    const ValueId swapped = graph.nodes[n].inputs[0];
    if (swapped == no_id || !edit.merges(swapped)) continue;
    const NodeId transpose = edit.producer(swapped);
    const std::int64_t groups = swapped_groups(graph, graph.node(transpose));
    if (groups == 0) continue;
    const ValueId grouped = graph.node(transpose).inputs[0], x = renamed(edit, grouped);
    if (x == no_id) continue;
    const Shape &shape = graph.value(x).shape, &result = graph.value(graph.nodes[n].outputs[0]).shape;
    if (!groups_of(graph.value(grouped).shape, shape) || !(result == shape)) continue;
    const NodeId reshape = edit.producer(grouped);
    edit.replace(last, make_normalised_op("ChannelShuffle", {{"groups", groups}}, 1), {x});
    edit.erase(transpose);
    edit.erase(reshape);
  }
  edit.finish();
}

}  // namespace lenslet
