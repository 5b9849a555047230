// unflatten_transposes: hybrids turn an image into tokens, [N,C,H,W] as [N,C,H*W] and transposed to [N,H*W,C], and
// back. The Transpose of [N,C,H,W] to [N,H,W,C] before the Reshape says the same, and is a change of format. On CUDA,
// where images lie in nhwc, a product between images, y[C,L'] = a[C,L] b[L,L'] (the state of EfficientViM), is computed
// as y^T = b^T a^T, so that neither image is converted. A reduction reads tokens without a Transpose.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/reduced_axes.h"
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

/// A product a b of a[N,C,L], which is an image, and b[N,L,L'], which becomes images again.
class ImageProducts {
 public:
  explicit ImageProducts(GraphEdit& edit) : edit_(edit), graph_(edit.graph()), readers_(edit.graph().readers()) {}

  /// `only_halves`: leaves out products that the file keeps in float32.
  void run(bool only_halves) {
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id) && is_between_images(id) &&
          !(only_halves && value(graph_.node(id).outputs[0]).file_type == DType::f32))
        transpose(id);
  }

 private:
  const Value& value(ValueId id) const { return graph_.value(id); }

  bool is_between_images(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.type() != "MatMul") return false;
    const Value &a = value(node.inputs[0]), &b = value(node.inputs[1]), &y = value(node.outputs[0]);
    const Node* const view = edit_.producer_node(node.inputs[0]);
    if (view == nullptr || !is_view(*view) || edit_.producer(view->inputs[0]) == no_id || b.is_constant() ||
        !flattens(value(view->inputs[0]).shape, a.shape) || b.shape.rank() != 3 || b.shape[0] != a.shape[0])
      return false;
    // b may need a Transpose, which must move less than conversions of both images.
    if (b.shape.elems() >= a.shape.elems() + y.shape.elems()) return false;
    const std::vector<NodeId>& readers = readers_[static_cast<std::size_t>(node.outputs[0])];
    return !readers.empty() && !edit_.is_output(node.outputs[0]) && std::ranges::all_of(readers, [&](NodeId reader) {
      return is_view(graph_.node(reader)) && flattens(value(graph_.node(reader).outputs[0]).shape, y.shape);
    });
  }

  void transpose(NodeId id) {
    const Node node = graph_.node(id);  // copies: nodes are added
    const ValueId y = node.outputs[0], image = edit_.producer_node(node.inputs[0])->inputs[0];
    const Shape a = value(node.inputs[0]).shape;
    const DType type = value(image).file_type, y_type = value(y).file_type;
    ValueId rows = node.inputs[1];
    const Node* const before = edit_.producer_node(rows);
    rows = swaps_tokens(before)
               ? before->inputs[0]
               : edit_.add_node(node.name + ":b", make_transpose_op({0, 2, 1}), {rows}, value(rows).file_type);
    const ValueId last = edit_.add_node(node.name + ":a", make_transpose_op(to_channels_last), {image}, type);
    const ValueId tokens = reshaped(last, {a[0], a[2], a[1]}, type);
    const ValueId made = edit_.add_node(node.name, node.op, {rows, tokens}, y_type);
    for (const NodeId reader : readers_[static_cast<std::size_t>(y)]) {
      const Shape to = value(graph_.node(reader).outputs[0]).shape;
      const ValueId pixels = reshaped(made, {to[0], to[2], to[3], to[1]}, y_type);
      edit_.replace(reader, make_transpose_op(to_channels_first), {pixels});
    }
    edit_.erase_unread(y);
  }

  ValueId reshaped(ValueId x, const std::vector<std::int64_t>& sizes, DType type) {
    const std::string name = value(x).name;
    return edit_.add_node(name + ":tokens", make_reshape_op(), {x, edit_.add_sizes(name + ":shape", sizes)}, type);
  }

  GraphEdit& edit_;
  Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  ///< by value, before the pass
};

/// Puts two other nodes in place of `node` and the one before it, which stays if others read it: `first` reads x.
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

/// A reduction of swapped tokens [N,C,L] to [N,C] or [N,L] reads the tokens [N,L,C].
void reduce_before_swap(GraphEdit& edit, NodeId id, ValueId tokens) {
  const Node& node = edit.graph().node(id);
  const auto axes = reduced_axes(edit.graph(), node);
  if (!node.type().starts_with("Reduce") || keeps_axes(node) || !axes || axes->size() != 1 || (*axes)[0] == 0) return;
  const std::int64_t axis = 3 - (*axes)[0];
  if (node.inputs.size() == 1)
    edit.replace(id, with_attributes(*node.op, {{"axes", std::vector{axis}}}, 1), {tokens});
  else
    edit.replace(id, node.op, {tokens, edit.add_sizes(node.name + ":axes", std::vector{axis})});
}

}  // namespace

void unflatten_transposes(Graph& graph, const PassContext& context) {
  GraphEdit edit(graph);
  const bool in_nhwc =
      context.target.device.kind == DeviceKind::cuda && context.target.numerics.multiply != Numerics::Multiply::fp32;
  if (in_nhwc) ImageProducts(edit).run(context.types_of_file);
  for (const NodeId id : edit.nodes()) {
    if (edit.erased(id)) continue;
    const Node& node = graph.node(id);
    if (!has_result(node) || node.inputs.empty()) continue;
    const bool only = edit.merges(node.inputs[0]);  // else an image in nchw would be converted once more
    if (!only && !in_nhwc) continue;
    const Node* const before = edit.producer_node(node.inputs[0]);
    const ValueId x = before == nullptr || before->inputs.empty() ? no_id : before->inputs[0];
    if (x == no_id) continue;
    const Shape from = graph.value(x).shape, between = graph.value(node.inputs[0]).shape,
                to = graph.value(node.outputs[0]).shape;
    const auto sizes = [&](const Shape& shape) { return edit.add_sizes(graph.node(id).name + ":shape", shape.dims()); };
    if (swaps_tokens(&node) && is_view(*before) && flattens(from, between)) {
      replace_both(edit, id, make_transpose_op(to_channels_last), {x}, make_reshape_op(), {sizes(to)});
    } else if (only && is_view(node) && swaps_tokens(before) && flattens(to, between)) {
      const ValueId image = sizes({to[0], to[2], to[3], to[1]});
      replace_both(edit, id, make_reshape_op(), {x, image}, make_transpose_op(to_channels_first), {});
    } else if (only && swaps_tokens(before)) {
      const ValueId swapped = node.inputs[0];
      reduce_before_swap(edit, id, x);
      edit.erase_unread(swapped);
    }
  }
  edit.finish();
}

}  // namespace lenslet
