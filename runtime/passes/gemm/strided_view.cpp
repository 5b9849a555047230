#include "runtime/passes/gemm/strided_view.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// Integers from an attribute or a known input.
std::optional<Integers> integers(const Graph& graph, const Node& node, std::string_view attribute, std::size_t input) {
  if (auto list = integers_attribute(*node.op, attribute)) return list;
  const ValueId id = input_of(node, input);
  if (id == no_id || !graph.value(id).is_constant()) return std::nullopt;
  const Tensor wide = graph.value(id).constant.to_dtype(DType::i64);
  return Integers(wide.values<std::int64_t>().begin(), wide.values<std::int64_t>().end());
}

std::size_t axis_of(std::int64_t axis, const StridedView& view) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(view.dims.size()) : axis);
}

bool transpose(StridedView& view, const Node& node) {
  const auto perm = integers_attribute(*node.op, "perm");
  const StridedView old = view;
  for (std::size_t i = 0; i < old.dims.size(); ++i) {
    const std::size_t from = perm ? static_cast<std::size_t>((*perm)[i]) : old.dims.size() - 1 - i;
    view.dims[i] = old.dims[from];
    view.strides[i] = old.strides[from];
  }
  return true;
}

/// One known index, which drops its axis or leaves 1.
bool gather(StridedView& view, const Graph& graph, const Node& node, const Shape& y) {
  const auto index = integers(graph, node, "", 1);
  if (!index || index->size() != 1) return false;
  const std::size_t axis = axis_of(integer_attribute(*node.op, "axis").value_or(0), view);
  const std::int64_t at = index->front() < 0 ? index->front() + view.dims[axis] : index->front();
  if (at < 0 || at >= view.dims[axis]) return false;
  view.offset += at * view.strides[axis];
  view.dims[axis] = 1;
  return view.reshape(y);
}

bool split(StridedView& view, const Graph& graph, const Node& node, ValueId out) {
  const std::size_t axis = axis_of(integer_attribute(*node.op, "axis").value_or(0), view);
  const std::vector<TensorType> types = graph.output_types(node);
  for (std::size_t i = 0; node.outputs[i] != out; ++i)
    view.offset += types[i].shape[static_cast<int>(axis)] * view.strides[axis];
  view.dims[axis] = graph.value(out).shape[static_cast<int>(axis)];
  return true;
}

bool slice(StridedView& view, const Graph& graph, const Node& node, const Shape& y) {
  const auto starts = integers(graph, node, "starts", 1), axes = integers(graph, node, "axes", 3),
             steps = integers(graph, node, "steps", 4);
  if (!starts) return false;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t axis = axes ? axis_of((*axes)[i], view) : i;
    const std::int64_t step = steps ? (*steps)[i] : 1, start = (*starts)[i];
    if (step < 1) return false;
    view.offset += std::max<std::int64_t>(0, start < 0 ? start + view.dims[axis] : start) * view.strides[axis];
    view.dims[axis] = y[static_cast<int>(axis)];
    if (view.dims[axis] > 1) view.strides[axis] *= step;
  }
  return true;
}

bool only_reshapes(std::string_view type) {
  return type == "Reshape" || type == "Squeeze" || type == "Unsqueeze" || type == "Flatten" || type == "Identity";
}

/// From a view of the input of `node` to one of its output `out`; false where it is none.
bool through(StridedView& view, const Graph& graph, const Node& node, ValueId out) {
  const Shape& y = graph.value(out).shape;
  if (only_reshapes(node.type())) return view.reshape(y);
  if (node.type() == "Transpose") return transpose(view, node);
  if (node.type() == "Gather") return gather(view, graph, node, y);
  if (node.type() == "Split") return split(view, graph, node, out);
  if (node.type() == "Slice") return slice(view, graph, node, y);
  const auto product = scaled(graph, node);
  if (product) view.factor *= product->factor;
  return product.has_value();
}

/// The input of `node` that its output may be a view of, or no_id.
ValueId viewed(const Graph& graph, const Node& node) {
  for (const std::string_view moves : {"Transpose", "Gather", "Split", "Slice"})
    if (node.type() == moves) return node.inputs[0];
  if (only_reshapes(node.type())) return node.inputs[0];
  const auto product = scaled(graph, node);
  return product ? product->x : no_id;
}

}  // namespace

StridedView whole_value(const Graph& graph, ValueId id) {
  const auto dims = graph.value(id).shape.dims();
  StridedView view{.value = id, .dims = {dims.begin(), dims.end()}, .strides = Integers(dims.size(), 1)};
  for (std::size_t i = dims.size(); i-- > 1;) view.strides[i - 1] = view.strides[i] * dims[i];
  return view;
}

bool StridedView::reshape(const Shape& to) {
  Integers old_dims, old_strides, new_strides(to.dims().size(), 0);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1) old_dims.push_back(dims[i]), old_strides.push_back(strides[i]);
  std::size_t from = old_dims.size(), into = new_strides.size();
  // From the end, groups of equal product: within one the old dimensions lie as one.
  while (into > 0) {
    std::int64_t wanted = to[static_cast<int>(--into)];
    if (wanted == 1) continue;
    if (from == 0) return false;
    std::int64_t have = old_dims[--from], stride = old_strides[from];
    std::size_t first = from;
    const std::size_t last = into;
    while (have != wanted) {
      if (have < wanted) {
        if (first == 0) return false;
        --first;
        if (old_strides[first] != old_strides[first + 1] * old_dims[first + 1]) return false;
        have *= old_dims[first];
      } else {
        if (into == 0) return false;
        wanted *= to[static_cast<int>(--into)];
      }
    }
    from = first;
    for (std::size_t i = last + 1; i-- > into; stride *= to[static_cast<int>(i)]) new_strides[i] = stride;
  }
  if (from != 0) return false;
  dims.assign(to.dims().begin(), to.dims().end());
  strides = std::move(new_strides);
  return true;
}

std::optional<Scaled> scaled(const Graph& graph, const Node& node) {
  const bool divides = node.type() == "Div";
  if (!divides && node.type() != "Mul") return std::nullopt;
  for (const std::size_t side : {1U, 0U}) {
    const std::optional<float> factor = scalar_constant(graph, node.inputs[side]);
    const ValueId x = node.inputs[1 - side];
    if (!factor || (divides && side == 0) || !(graph.value(x).shape == graph.value(node.outputs[0]).shape)) continue;
    const double times = divides ? 1 / static_cast<double>(*factor) : static_cast<double>(*factor);
    if (std::isfinite(times)) return Scaled{x, times};
  }
  return std::nullopt;
}

std::vector<StridedView> views_of(const GraphEdit& edit, ValueId id) {
  const Graph& graph = edit.graph();
  std::vector<ValueId> chain{id};
  for (const Node* node = edit.producer_node(id); node != nullptr; node = edit.producer_node(chain.back())) {
    const ValueId above = viewed(graph, *node);
    if (above == no_id) break;
    chain.push_back(above);
  }
  std::vector<StridedView> views;
  for (std::size_t start = chain.size(); start-- > 0;) {
    StridedView view = whole_value(graph, chain[start]);
    bool expressible = true;
    for (std::size_t i = start; expressible && i-- > 0;)
      expressible = through(view, graph, *edit.producer_node(chain[i]), chain[i]);
    if (expressible) views.push_back(std::move(view));
  }
  return views;
}

}  // namespace lenslet
