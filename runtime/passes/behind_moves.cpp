#include "runtime/passes/behind_moves.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"
#include "runtime/passes/epilogue.h"

namespace lenslet {
namespace {

constexpr int no_axis = -1;  ///< channels do not matter

/// The axis of view `x` that is axis `axis` of `y`: as long, and as many elements before it.
std::optional<int> axis_before_view(const Shape& x, const Shape& y, int axis) {
  if (axis == no_axis) return axis;
  std::int64_t before = 1, outer = 1;
  for (int d = 0; d < axis; ++d) before *= y[d];
  for (int d = 0; d < x.rank(); outer *= x[d++])
    if (outer == before && x[d] == y[axis] && (x[d] != 1 || y.elems() == 1)) return d;
  return std::nullopt;
}

/// A value that no Concat or move makes, and where its channels begin in the value that was asked for.
struct Source {
  ValueId id = no_id;
  int axis = 0;
  std::int64_t first = 0;
};

/// Appends the sources of `id`, whose channels lie along `axis`. False if another node reads one of the values between,
/// or a move mixes channels with others. `concats`: how many there are.
bool add_sources(const GraphEdit& edit, Source of, std::vector<Source>& sources, int& concats) {
  if (!edit.merges(of.id)) return false;
  const Graph& graph = edit.graph();
  const Node& node = *edit.producer_node(of.id);
  const Shape& y = graph.value(of.id).shape;
  if (node.outputs.size() == 1 && is_view(node)) {
    const auto axis = axis_before_view(graph.value(node.inputs[0]).shape, y, of.axis);
    return axis && add_sources(edit, {node.inputs[0], *axis, of.first}, sources, concats);
  }
  if (node.type() == "Transpose") {
    const auto perm = integers_attribute(*node.op, "perm");
    if (!perm) return false;
    const int axis = of.axis == no_axis ? no_axis : static_cast<int>((*perm)[static_cast<std::size_t>(of.axis)]);
    return add_sources(edit, {node.inputs[0], axis, of.first}, sources, concats);
  }
  if (node.type() != "Concat") {
    sources.push_back(of);
    return true;
  }
  ++concats;
  std::int64_t axis = integer_attribute(*node.op, "axis").value();
  if (axis < 0) axis += y.rank();
  for (const ValueId input : node.inputs) {
    if (!add_sources(edit, {input, of.axis, of.first}, sources, concats)) return false;
    if (axis == of.axis) of.first += graph.value(input).shape[of.axis];
  }
  return true;
}

/// factor[c] * x + offset[c] for element c of the last axis, as tokens [N,L,C] have their channels, by a node of two
/// inputs; or nothing.
std::optional<AffineOf> affine_of_last_axis(const Graph& graph, const Node& node) {
  if (!has_result(node) || node.inputs.size() != 2 || node.inputs[0] == no_id || node.inputs[1] == no_id)
    return std::nullopt;
  const Shape& y = graph.value(node.outputs[0]).shape;
  const std::int64_t c = y.rank() < 3 ? 0 : y[y.rank() - 1];
  if (c == 0 || y.elems() == 0) return std::nullopt;
  const Shape rows{y.elems() / c, c};
  for (const std::size_t side : {0U, 1U}) {
    const Value &x = graph.value(node.inputs[side]), &parameter = graph.value(node.inputs[1 - side]);
    const Shape& shape = parameter.shape;
    const bool single = shape.elems() == 1, by_channel = !single && shape.elems() == c && shape[shape.rank() - 1] == c;
    if (x.is_constant() || !(x.shape == y) || !parameter.is_constant() || (!single && !by_channel)) continue;
    const Tensor flat = parameter.constant.reshaped(single ? Shape{} : Shape{c});
    std::vector<InputInfo> infos = graph.input_infos(node);
    infos[side].type.shape = rows;
    infos[1 - side].type.shape = flat.shape();
    infos[1 - side].constant = &flat;
    if (auto affine = node.op->as_channel_affine(infos, side, rows))
      return AffineOf{node.inputs[side], *std::move(affine)};
  }
  return std::nullopt;
}

/// Gives `node`'s place to the move that makes its input.
void replace_by_move(GraphEdit& edit, NodeId node, ValueId x) {
  const NodeId move = edit.producer(x);
  const Node& made_by = edit.graph().node(move);
  merge_into(edit, node, move, made_by.op, made_by.inputs);
}

/// The affine is of axis `axis` of its x.
bool fold_behind_moves(GraphEdit& edit, NodeId node, const std::optional<AffineOf>& of, int axis) {
  const Graph& graph = edit.graph();
  std::vector<Source> sources;
  int concats = 0;
  if (!of || !add_sources(edit, {of->x, axis, 0}, sources, concats) || sources.empty()) return false;
  std::vector<AffineProduct> changed;
  for (const Source& source : sources) {
    const Node& product = *edit.producer_node(source.id);
    const Epilogue* const epilogue = product.op->epilogue();
    if (source.id == of->x || !of_product(epilogue) || epilogue->channel_axis != source.axis) return false;
    const auto first = static_cast<std::ptrdiff_t>(source.first);
    const auto end = first + static_cast<std::ptrdiff_t>(graph.value(source.id).shape[source.axis]);
    const auto part = [&](const std::vector<double>& all) {
      return std::vector<double>(all.begin() + first, all.begin() + end);
    };
    auto product_of = affine_product(edit, source.id, {part(of->affine.factor), part(of->affine.offset)});
    if (!product_of) return false;
    changed.push_back(*std::move(product_of));
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const NodeId product = edit.producer(sources[i].id);
    std::vector<ValueId> inputs = inputs_of(edit, product, changed[i]);
    edit.replace(product, graph.node(product).op->with_epilogue(std::move(changed[i].epilogue)), std::move(inputs));
  }
  replace_by_move(edit, node, of->x);
  return true;
}

}  // namespace

bool fold_affine_behind_moves(GraphEdit& edit, NodeId node) {
  const Graph& graph = edit.graph();
  const Node& affine = graph.node(node);
  if (fold_behind_moves(edit, node, affine_of(graph, affine), 1)) return true;
  const auto of_last = affine_of_last_axis(graph, affine);
  return of_last && fold_behind_moves(edit, node, of_last, graph.value(of_last->x).shape.rank() - 1);
}

void merge_activation_behind_concats(GraphEdit& edit, NodeId node) {
  const Graph& graph = edit.graph();
  const Node& reader = graph.node(node);
  const ValueId x = input_of(reader, 0);
  std::vector<Source> sources;
  int concats = 0;
  if (x == no_id) return;
  const auto activation = reader.op->as_activation(graph.input_infos(reader));
  if (!activation || !add_sources(edit, {x, no_axis, 0}, sources, concats) || concats == 0 || sources.empty()) return;
  std::vector<std::shared_ptr<const Op>> activated;
  for (const Source& source : sources) {
    const Op& op = *edit.producer_node(source.id)->op;
    if (!takes_more(op.epilogue())) return;
    Epilogue epilogue = *op.epilogue();
    epilogue.activation = *activation;
    activated.push_back(op.with_epilogue(std::move(epilogue)));
    if (activated.back() == nullptr) return;
  }
  for (std::size_t i = 0; i < sources.size(); ++i)
    edit.replace(edit.producer(sources[i].id), activated[i], edit.producer_node(sources[i].id)->inputs);
  replace_by_move(edit, node, x);
}

}  // namespace lenslet
