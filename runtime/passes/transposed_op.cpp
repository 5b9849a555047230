#include "runtime/passes/transposed_op.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/thread_pool.h"
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"
#include "ops/movement/pad.h"
#include "runtime/graph/evaluate.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// Axis of [N,C,H,W] that is `axis` (may count from the end) of [N,H,W,C].
std::int64_t first_axis(std::int64_t axis) {
  return to_channels_last[static_cast<std::size_t>(axis < 0 ? axis + 4 : axis)];
}

Shape channels_first(const Shape& s) { return {s[0], s[3], s[1], s[2]}; }

/// A constant that broadcasts against [N,H,W,C], as one that broadcasts against [N,C,H,W]; no_id when it cannot.
ValueId transposed_constant(Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.layout != formats::nchw || value.shape.rank() > 4) return no_id;
  if (value.constant.elems() == 1 && value.shape.rank() <= 1) return id;
  Shape four{1, 1, 1, 1};
  for (int axis = 0; axis < value.shape.rank(); ++axis)
    four = four.with(axis + 4 - value.shape.rank(), value.shape[axis]);
  const Tensor input = value.constant.reshaped(four);
  const TensorType type{input.dtype(), channels_first(four)};
  const auto transpose = make_op("Transpose", "", {{"perm", to_channels_first}}, 1);
  ThreadPool pool(1);
  return graph.add_constant(value.name + ":channels_first", evaluate(*transpose, {&input, 1}, {&type, 1}, pool)[0]);
}

std::optional<ChannelsFirstNode> elementwise(Graph& graph, const Node& node, const std::vector<ValueId>& twins) {
  ChannelsFirstNode result{node.op, {}, {}, false};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = twins[i] != no_id ? twins[i] : transposed_constant(graph, node.inputs[i]);
    if (input == no_id) return std::nullopt;
    result.inputs.push_back(input);
  }
  return result;
}

std::optional<ChannelsFirstNode> concat(Graph& graph, const Node& node, const std::vector<ValueId>& twins) {
  const auto axis = integer_attribute(*node.op, "axis");
  if (!axis) return std::nullopt;
  auto result = elementwise(graph, node, twins);
  if (!result) return std::nullopt;
  for (const ValueId id : result->inputs)
    if (graph.value(id).shape.rank() != 4) return std::nullopt;
  result->op = make_op("Concat", "", {{"axis", first_axis(*axis)}}, node.inputs.size());
  return result;
}

std::optional<ChannelsFirstNode> pad(Graph& graph, const Node& node, const PadOp& op,
                                     const std::vector<ValueId>& twins) {
  const Integers pads = op.pads(graph.input_infos(node));
  Integers moved(8, 0);
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    const auto to = static_cast<std::size_t>(first_axis(axis)), from = static_cast<std::size_t>(axis);
    moved[to] = pads[from];
    moved[to + 4] = pads[from + 4];
  }
  if (op.attribute_pads) {
    auto changed = std::make_shared<PadOp>(op);
    changed->attribute_pads = std::move(moved);
    return ChannelsFirstNode{std::move(changed), {twins[0]}, {}, false};
  }
  Integers target = std::move(moved);
  const ValueId list = graph.add_constant(node.name + ":pads", Tensor::of<std::int64_t>(Shape{8}, target));
  std::vector<ValueId> inputs{twins[0], list};
  if (node.inputs.size() > 2) inputs.push_back(node.inputs[2]);  // the axes, input 3, are in the list
  return ChannelsFirstNode{node.op, std::move(inputs), {}, false};
}

std::optional<Integers> axes_of(const Graph& graph, const Node& node) {
  if (auto axes = integers_attribute(*node.op, "axes"); axes && !axes->empty()) return axes;
  if (node.inputs.size() < 2 || node.inputs[1] == no_id) return std::nullopt;
  const Value& list = graph.value(node.inputs[1]);
  if (!list.is_constant() || list.dtype != DType::i64 || list.constant.elems() == 0) return std::nullopt;
  const auto values = list.constant.values<std::int64_t>();
  return Integers(values.begin(), values.end());
}

/// Reductions and Squeeze: the axes are mapped; without keepdims only when those that are left keep their order.
std::optional<ChannelsFirstNode> along_axes(Graph& graph, const Node& node, bool keepdims,
                                            const std::vector<ValueId>& twins) {
  const auto axes = axes_of(graph, node);
  if (!axes) return std::nullopt;
  Integers moved;
  for (const std::int64_t axis : *axes) moved.push_back(first_axis(axis));
  std::sort(moved.begin(), moved.end());
  Integers left;
  for (std::int64_t axis = 0; axis < 4; ++axis)
    if (std::find(moved.begin(), moved.end(), first_axis(axis)) == moved.end()) left.push_back(first_axis(axis));
  const bool in_order = std::is_sorted(left.begin(), left.end());
  if (!keepdims && !in_order) return std::nullopt;
  AttributeList attributes{{"axes", moved}};
  if (node.type() != "Squeeze") attributes.emplace_back("keepdims", std::int64_t{keepdims});
  // Opset 11: the axes of all of these are attributes.
  return ChannelsFirstNode{make_op(node.type(), "", attributes, 1, 1, 11), {twins[0]}, {}, !keepdims};
}

std::optional<ChannelsFirstNode> rewrite(Graph& graph, const Node& node, const std::vector<ValueId>& twins) {
  const Op* op = node.op.get();
  if (dynamic_cast<const BinaryOp*>(op) != nullptr) return elementwise(graph, node, twins);
  if (node.type() == "Concat") return concat(graph, node, twins);
  if (twins[0] == no_id) return std::nullopt;
  if (dynamic_cast<const UnaryOp*>(op) != nullptr || dynamic_cast<const ClipOp*>(op) != nullptr) {
    std::vector<ValueId> inputs = node.inputs;  // bounds are scalars
    inputs[0] = twins[0];
    return ChannelsFirstNode{node.op, std::move(inputs), {}, false};
  }
  if (const auto* padding = dynamic_cast<const PadOp*>(op)) return pad(graph, node, *padding, twins);
  if (node.type() == "Squeeze") return along_axes(graph, node, false, twins);
  if (node.type().starts_with("Reduce"))
    return along_axes(graph, node, integer_attribute(*op, "keepdims").value_or(1) != 0, twins);
  return std::nullopt;
}

}  // namespace

std::optional<ChannelsFirstNode> to_channels_first_node(Graph& graph, const Node& node,
                                                        const std::vector<ValueId>& twins) {
  if (node.outputs.size() != 1 || std::all_of(twins.begin(), twins.end(), [](ValueId id) { return id == no_id; }))
    return std::nullopt;
  const Node copy = node;  // constants are added to the graph meanwhile, never nodes; the node may be moved from
  auto result = rewrite(graph, copy, twins);
  if (!result) return std::nullopt;
  const Shape& old = graph.value(copy.outputs[0]).shape;
  result->output = result->same_result ? old : channels_first(old);
  return result;
}

}  // namespace lenslet
