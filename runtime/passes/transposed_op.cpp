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

/// Prepends missing axes, with size 1.
Shape with_four_axes(const Shape& s) {
  Shape four{1, 1, 1, 1};
  for (int axis = 0; axis < s.rank(); ++axis) four = four.with(axis + 4 - s.rank(), s[axis]);
  return four;
}

ValueId transposed_constant(Graph& graph, ValueId id) {
  const Value& value = graph.value(id);
  const Shape four = with_four_axes(value.shape);
  const Tensor input = value.constant.reshaped(four);
  const TensorType type{input.dtype(), channels_first(four)};
  const auto transpose = make_transpose_op(to_channels_first);
  ThreadPool pool(1);
  return graph.add_constant(value.name + ":channels_first", evaluate(transpose, {&input, 1}, {&type, 1}, pool)[0]);
}

/// The same bytes under another shape.
ValueId reshaped(Graph& graph, ValueId id, const Shape& shape, std::vector<Node>& before) {
  const TensorType type{graph.value(id).dtype, shape};
  const std::string name = graph.value(id).name + ":channels_first";
  const ValueId dims = graph.add_constant(name + ":shape", Tensor::of<std::int64_t>(Shape{shape.rank()}, shape.dims()));
  const ValueId made = graph.add_value(name);
  graph.value(made).dtype = type.dtype;
  graph.value(made).shape = type.shape;
  graph.value(made).typed = true;
  before.push_back({.name = name, .op = make_reshape_op(), .inputs = {id, dims}, .outputs = {made}});
  return made;
}

/// An operand broadcast against [N,H,W,C] as one against [N,C,H,W]; no_id if that would move bytes during the run.
ValueId in_new_order(Graph& graph, ValueId id, std::vector<Node>& before) {
  if (id == no_id || graph.value(id).format != formats::nchw || graph.value(id).shape.rank() > 4) return no_id;
  const Shape shape = graph.value(id).shape, four = with_four_axes(shape);
  if (shape.rank() <= 1 && shape.elems() == 1) return id;
  if (graph.value(id).is_constant()) return transposed_constant(graph, id);
  if (!keeps_order(to_channels_first, four)) return no_id;
  return channels_first(four) == shape ? id : reshaped(graph, id, channels_first(four), before);
}

}  // namespace

bool keeps_order(std::span<const std::int64_t> perm, const Shape& x) {
  std::int64_t last = -1;
  for (const std::int64_t axis : perm) {
    if (x[static_cast<int>(axis)] == 1) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

std::shared_ptr<const Op> make_transpose_op(const std::vector<std::int64_t>& perm) {
  return make_normalised_op("Transpose", {{"perm", perm}}, 1);
}

std::shared_ptr<const Op> make_reshape_op() {
  return make_normalised_op("Reshape", {{"allowzero", std::int64_t{1}}}, 2);
}

Tensor transposed_matrix(const Tensor& matrix) {
  const std::int64_t c = matrix.shape()[0], k = matrix.shape()[1];
  Tensor turned(DType::f32, Shape{k, c});
  const auto from = matrix.values<float>();
  const auto to = turned.values<float>();
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < c; ++j)
      to[static_cast<std::size_t>(i * c + j)] = from[static_cast<std::size_t>(j * k + i)];
  return turned;
}

std::optional<ChannelsFirstNode> to_channels_first_node(Graph& graph, const Node& node,
                                                        const std::vector<ValueId>& twins) {
  if (node.outputs.size() != 1) return std::nullopt;
  const auto op = node.op->permuted(moved, graph.input_infos(node));
  if (!op) return std::nullopt;
  const bool any = std::any_of(op->inputs.begin(), op->inputs.end(), [&](const PermutedOp::Input& input) {
    return input.permuted && twins[input.number] != no_id;
  });
  if (!any) return std::nullopt;
  const Node copy = node;  // constants and values are added to the graph meanwhile, never nodes; the node may be moved
  ChannelsFirstNode result{.op = op->op != nullptr ? op->op : copy.op, .inputs = {}, .same_result = op->same_result};
  for (const PermutedOp::Input& input : op->inputs) {
    ValueId id = copy.inputs[input.number];
    if (!input.instead.empty()) {
      id = graph.add_constant(graph.value(id).name + ":channels_first", input.instead);
    } else if (input.permuted) {
      const ValueId twin = twins[input.number];
      id = twin != no_id ? twin : in_new_order(graph, id, result.before);
      if (id == no_id) return std::nullopt;
    }
    result.inputs.push_back(id);
  }
  const Shape& old = graph.value(copy.outputs[0]).shape;
  result.output = result.same_result ? old : channels_first(old);
  return result;
}

}  // namespace lenslet
