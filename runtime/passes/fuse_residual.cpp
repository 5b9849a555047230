// fuse_residual: the Add of a residual block, and the activation after it, move into the epilogue of the last
// convolution or normalization before it, also through the Transpose, and views, that matmul_to_conv puts behind one.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/epilogue.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

/// The epilogue of the producer of `id`, if it can add a residual and `id` has no other reader; else null.
const Epilogue* open_epilogue(const GraphEdit& edit, ValueId id) {
  if (!edit.merges(id)) return nullptr;
  const Node* made_by = edit.producer_node(id);
  const Epilogue* epilogue = made_by->op->epilogue();
  if (!takes_more(epilogue) || epilogue->residual_input == Epilogue::no_input) return nullptr;
  const auto residual = static_cast<std::size_t>(epilogue->residual_input);
  return input_of(*made_by, residual) == no_id ? epilogue : nullptr;
}

bool is_sum_of_equals(const Graph& graph, const Node& node) {
  if ((node.type() != "Add" && node.type() != "Sum") || node.inputs.size() != 2) return false;
  return std::ranges::all_of(node.inputs, [&](ValueId id) {
    return !graph.value(id).is_constant() && graph.value(id).shape == graph.value(node.outputs[0]).shape;
  });
}

bool merge_sum(GraphEdit& edit, NodeId id) {
  const Node& node = edit.graph().node(id);
  if (!is_sum_of_equals(edit.graph(), node)) return false;
  const Epilogue* const sides[2] = {open_epilogue(edit, node.inputs[0]), open_epilogue(edit, node.inputs[1])};
  if (sides[0] == nullptr && sides[1] == nullptr) return false;
  // Of two products the later one adds the other's result, which is complete by then.
  const bool second =
      sides[0] == nullptr || (sides[1] != nullptr && edit.producer(node.inputs[1]) > edit.producer(node.inputs[0]));
  const auto residual_input = static_cast<std::size_t>(sides[second ? 1 : 0]->residual_input);
  const ValueId product = node.inputs[second ? 1 : 0], residual = node.inputs[second ? 0 : 1];
  const NodeId producer = edit.producer(product);
  std::vector<ValueId> inputs = edit.graph().node(producer).inputs;
  inputs.resize(std::max(inputs.size(), residual_input + 1), no_id);
  inputs[residual_input] = residual;
  merge_into(edit, id, producer, edit.graph().node(producer).op, std::move(inputs));
  return true;
}

/// The sum of a product in channels last, transposed back from [N,C,H,W] and perhaps viewed in another shape, becomes
/// the product's sum in [N,C,H,W], transposed back: changes of format to assign_formats, as the one before was.
bool merge_sum_before_transpose(GraphEdit& edit, NodeId id) {
  Graph& graph = edit.graph();
  if (!is_sum_of_equals(graph, graph.node(id))) return false;
  for (const std::size_t side : {0U, 1U}) {
    const ValueId seen = graph.node(id).inputs[side], residual = graph.node(id).inputs[1 - side];
    ValueId rows = seen;
    while (edit.merges(rows) && is_view(*edit.producer_node(rows))) rows = edit.producer_node(rows)->inputs[0];
    const bool viewed = rows != seen;
    const Node* const transpose = edit.merges(rows) ? edit.made_by(rows, "Transpose") : nullptr;
    if (transpose == nullptr || integers_attribute(*transpose->op, "perm") != to_channels_last ||
        open_epilogue(edit, transpose->inputs[0]) == nullptr)
      continue;
    const ValueId product = transpose->inputs[0], y = graph.node(id).outputs[0];
    const std::string name = graph.node(id).name;
    const Shape shape = graph.value(rows).shape, result = graph.value(y).shape;
    const DType type = graph.value(y).file_type, residual_type = graph.value(residual).file_type;
    const auto sizes = [&](const Shape& of) { return edit.add_sizes(name + ":shape", of.dims()); };
    ValueId other = residual;
    if (viewed) other = edit.add_node(name + ":image", make_reshape_op(), {other, sizes(shape)}, residual_type);
    other = edit.add_node(name + ":channels_first", make_transpose_op(to_channels_first), {other}, residual_type);
    const ValueId sum = edit.add_node(name, graph.node(id).op, {product, other}, type);
    const auto back = make_transpose_op(to_channels_last);
    if (viewed) {
      const ValueId last = edit.add_node(name + ":channels_last", back, {sum}, type);
      edit.replace(id, make_reshape_op(), {last, sizes(result)});
    } else {
      edit.replace(id, back, {sum});
    }
    graph.node(id).name = name + (viewed ? ":viewed" : ":channels_last");
    edit.erase_unread(seen);
    return merge_sum(edit, edit.producer(sum));
  }
  return false;
}

/// Whether `node` already has a residual.
bool adds_residual(const Node& node) {
  const Epilogue* epilogue = node.op->epilogue();
  return epilogue != nullptr && input_of(node, static_cast<std::size_t>(epilogue->residual_input)) != no_id;
}

}  // namespace

void fuse_residual(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId id : edit.nodes()) {
    if (edit.erased(id) || merge_sum(edit, id) || merge_sum_before_transpose(edit, id)) continue;
    // The activation after a newly fused Add.
    const Node* made_by = edit.producer_node(input_of(graph.node(id), 0));
    if (made_by != nullptr && adds_residual(*made_by)) merge_activation(edit, id);
  }
  edit.finish();
}

}  // namespace lenslet
