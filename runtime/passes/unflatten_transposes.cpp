// unflatten_transposes: hybrids turn an image into tokens, [N,C,H,W] as [N,C,H*W] and transposed to [N,H*W,C], and
// back. The Transpose of [N,C,H,W] to [N,H,W,C] before the Reshape says the same, and is a change of format.
#include <optional>
#include <string>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

bool swaps_tokens(const Node* node) {
  return node != nullptr && node->type() == "Transpose" &&
         attribute<std::vector<std::int64_t>>(*node->op, "perm") == std::vector<std::int64_t>{0, 2, 1};
}

/// Whether `tokens` [N,C,L] is the image [N,C,H,W] with H and W as one axis.
bool flattens(const Shape& image, const Shape& tokens) {
  return image.rank() == 4 && tokens.rank() == 3 && image.elems() > 0 && image[0] == tokens[0] && image[1] == tokens[1];
}

/// Puts two other nodes in place of `node` and the one before it, whose result nobody else reads: `first` reads x.
void replace_both(GraphEdit& edit, NodeId node, std::shared_ptr<const Op> first, std::vector<ValueId> inputs,
                  std::shared_ptr<const Op> second, std::vector<ValueId> others) {
  Graph& graph = edit.graph();
  const ValueId between = graph.node(node).inputs[0];
  const ValueId made = edit.add_node(graph.node(node).name + ":image", std::move(first), std::move(inputs),
                                     graph.value(between).file_type);
  others.insert(others.begin(), made);
  edit.replace(node, std::move(second), std::move(others));
  edit.erase_unread(between);
}

}  // namespace

void unflatten_transposes(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId id : edit.nodes()) {
    if (edit.erased(id)) continue;
    const Node& node = graph.node(id);
    if (!has_result(node) || node.inputs.empty() || !edit.merges(node.inputs[0])) continue;
    const Node* const before = edit.producer_node(node.inputs[0]);
    const ValueId x = before->inputs.empty() ? no_id : before->inputs[0];
    if (x == no_id) continue;
    const Shape from = graph.value(x).shape, between = graph.value(node.inputs[0]).shape,
                to = graph.value(node.outputs[0]).shape;
    const auto sizes = [&](const Shape& shape) { return edit.add_sizes(graph.node(id).name + ":shape", shape.dims()); };
    if (swaps_tokens(&node) && is_view(*before) && flattens(from, between)) {
      replace_both(edit, id, make_transpose_op(to_channels_last), {x}, make_reshape_op(), {sizes(to)});
    } else if (is_view(node) && swaps_tokens(before) && flattens(to, between)) {
      const ValueId image = sizes({to[0], to[2], to[3], to[1]});
      replace_both(edit, id, make_reshape_op(), {x, image}, make_transpose_op(to_channels_first), {});
    }
  }
  edit.finish();
}

}  // namespace lenslet
