#include "runtime/passes/transposed_op.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/thread_pool.h"
#include "runtime/graph/evaluate.h"

namespace lenslet {
namespace {

/// Axis i of [N,H,W,C] is axis moved[i] of [N,C,H,W].
constexpr std::array<int, 4> moved{0, 2, 3, 1};

Shape channels_first(const Shape& s) { return {s[0], s[3], s[1], s[2]}; }

/// A constant that broadcasts against [N,H,W,C], as one that broadcasts against [N,C,H,W]; no_id when it cannot.
ValueId transposed_constant(Graph& graph, ValueId id) {
  if (id == no_id) return no_id;
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.format != formats::nchw || value.shape.rank() > 4) return no_id;
  if (value.constant.elems() == 1 && value.shape.rank() <= 1) return id;
  Shape four{1, 1, 1, 1};
  for (int axis = 0; axis < value.shape.rank(); ++axis)
    four = four.with(axis + 4 - value.shape.rank(), value.shape[axis]);
  const Tensor input = value.constant.reshaped(four);
  const TensorType type{input.dtype(), channels_first(four)};
  const auto transpose = make_normalised_op("Transpose", {{"perm", to_channels_first}}, 1);
  ThreadPool pool(1);
  return graph.add_constant(value.name + ":channels_first", evaluate(transpose, {&input, 1}, {&type, 1}, pool)[0]);
}

/// Elementwise operators: the same on every axis, so only constants need to be moved; parameters (bounds) stay.
std::optional<ChannelsFirstNode> elementwise(Graph& graph, const Node& node, const AxisMap& map,
                                             const std::vector<ValueId>& twins) {
  ChannelsFirstNode result{node.op, {}, {}, false};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool stays = map.inputs[i].parameter;
    const ValueId input = stays               ? node.inputs[i]
                          : twins[i] != no_id ? twins[i]
                                              : transposed_constant(graph, node.inputs[i]);
    if (input == no_id && !stays) return std::nullopt;
    result.inputs.push_back(input);
  }
  return result;
}

/// Others say themselves what they are on the moved axes.
std::optional<ChannelsFirstNode> permuted(Graph& graph, const Node& node, const std::vector<InputInfo>& infos,
                                          const std::vector<ValueId>& twins) {
  const auto op = node.op->permuted(moved, infos);
  if (!op) return std::nullopt;
  ChannelsFirstNode result{op->op, {}, {}, op->same_result};
  for (const int input : op->inputs) {
    const auto i = static_cast<std::size_t>(input);
    const bool images = node.inputs[i] != no_id && infos[i].type.shape.rank() == 4;
    ValueId id = node.inputs[i];
    if (twins[i] != no_id)
      id = twins[i];
    else if (images)
      id = transposed_constant(graph, id);
    if (images && (id == no_id || graph.value(id).shape.rank() != 4)) return std::nullopt;
    result.inputs.push_back(id);
  }
  return result;
}

std::optional<ChannelsFirstNode> rewrite(Graph& graph, const Node& node, const std::vector<ValueId>& twins) {
  const std::vector<InputInfo> infos = graph.input_infos(node);
  const Shape y = graph.value(node.outputs[0]).shape;
  const auto map = node.op->axis_map(infos, y);
  if (map && map->broadcasts && y.rank() == 4) return elementwise(graph, node, *map, twins);
  if (twins[0] == no_id && infos[0].constant == nullptr) return std::nullopt;
  return permuted(graph, node, infos, twins);
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
