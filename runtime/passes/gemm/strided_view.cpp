#include "runtime/passes/gemm/strided_view.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "runtime/passes/known_integers.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// Neighbours that lie as one become one.
Axis merged(const Axis& axis) {
  Axis joined;
  for (const Factor& factor : axis)
    if (!joined.empty() && joined.back().stride == factor.stride * factor.extent)
      joined.back() = {joined.back().extent * factor.extent, factor.stride};
    else
      joined.push_back(factor);
  return joined;
}

std::size_t axis_of(std::int64_t axis, const FactoredView& view) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(view.axes.size()) : axis);
}

bool transpose(FactoredView& view, const Node& node) {
  const auto perm = integers_attribute(*node.op, "perm");
  const std::vector<Axis> old = view.axes;
  for (std::size_t i = 0; i < old.size(); ++i)
    view.axes[i] = old[perm ? static_cast<std::size_t>((*perm)[i]) : old.size() - 1 - i];
  return true;
}

/// One known index, which drops its axis or leaves 1.
bool gather(FactoredView& view, const Graph& graph, const Node& node, const Shape& y) {
  const auto index = known_integers(graph, node, "", 1);
  if (!index || index->size() != 1) return false;
  const std::size_t axis = axis_of(integer_attribute(*node.op, "axis").value_or(0), view);
  const std::int64_t size = extent_of(view.axes[axis]),
                     at = index->front() < 0 ? index->front() + size : index->front();
  return at >= 0 && at < size && view.take(axis, at, 1) && view.reshape(y);
}

bool split(FactoredView& view, const Graph& graph, const Node& node, ValueId out) {
  const std::size_t axis = axis_of(integer_attribute(*node.op, "axis").value_or(0), view);
  const std::vector<TensorType> types = graph.output_types(node);
  std::int64_t start = 0;
  for (std::size_t i = 0; node.outputs[i] != out; ++i) start += types[i].shape[static_cast<int>(axis)];
  return view.take(axis, start, graph.value(out).shape[static_cast<int>(axis)]);
}

bool slice(FactoredView& view, const Graph& graph, const Node& node, const Shape& y) {
  const auto starts = known_integers(graph, node, "starts", 1), axes = known_integers(graph, node, "axes", 3),
             steps = known_integers(graph, node, "steps", 4);
  if (!starts) return false;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t axis = axes ? axis_of((*axes)[i], view) : i;
    const std::int64_t step = steps ? (*steps)[i] : 1, start = (*starts)[i];
    const std::int64_t from = std::max<std::int64_t>(0, start < 0 ? start + extent_of(view.axes[axis]) : start);
    if (step < 1 || !view.take(axis, from, y[static_cast<int>(axis)], step)) return false;
  }
  return true;
}

bool only_reshapes(std::string_view type) {
  return type == "Reshape" || type == "Squeeze" || type == "Unsqueeze" || type == "Flatten" || type == "Identity";
}

/// From a view of the input of `node` to one of its output `out`; false where it is none.
bool through(FactoredView& view, const Graph& graph, const Node& node, ValueId out) {
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

std::int64_t extent_of(const Axis& axis) {
  std::int64_t extent = 1;
  for (const Factor& factor : axis) extent *= factor.extent;
  return extent;
}

FactoredView::FactoredView(const StridedView& view) : value(view.value), offset(view.offset), factor(view.factor) {
  for (std::size_t i = 0; i < view.dims.size(); ++i)
    axes.push_back(view.dims[i] == 1 ? Axis{} : Axis{{view.dims[i], view.strides[i]}});
}

std::optional<StridedView> FactoredView::strided() const {
  StridedView view{.value = value, .offset = offset, .dims = {}, .strides = {}, .factor = factor};
  for (const Axis& axis : axes) {
    const Axis joined = merged(axis);
    if (joined.size() > 1) return std::nullopt;
    view.dims.push_back(joined.empty() ? 1 : joined[0].extent);
    view.strides.push_back(joined.empty() ? 0 : joined[0].stride);
  }
  return view;
}

bool FactoredView::reshape(const Shape& to) {
  if (to.elems() == 0) return false;
  Axis all;
  for (const Axis& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
  all = merged(all);
  std::vector<Axis> made(to.dims().size());
  for (std::size_t i = made.size(); i-- > 0;)
    for (std::int64_t wanted = to[static_cast<int>(i)]; wanted != 1;) {
      if (all.empty()) return false;
      Factor& last = all.back();
      if (wanted % last.extent == 0) {
        wanted /= last.extent;
        made[i].insert(made[i].begin(), last);
        all.pop_back();
      } else if (last.extent % wanted == 0) {
        made[i].insert(made[i].begin(), {wanted, last.stride});
        last = {last.extent / wanted, last.stride * wanted};
        wanted = 1;
      } else {
        return false;
      }
    }
  if (!all.empty()) return false;
  axes = std::move(made);
  return true;
}

bool FactoredView::take(std::size_t i, std::int64_t start, std::int64_t extent, std::int64_t step) {
  Axis& axis = axes[i];
  if (extent == 0) return false;
  if (axis.empty()) return start == 0 && extent == 1;
  const std::int64_t inner = extent_of({axis.begin() + 1, axis.end()});
  if (start % inner == 0 && extent % inner == 0 && (step == 1 || axis.size() == 1)) {
    offset += start / inner * axis[0].stride;
    axis[0] = {extent / inner, axis[0].stride * step};
    if (axis[0].extent == 1) axis.erase(axis.begin());
    return true;
  }
  if (extent != 1) return false;
  for (std::size_t part = axis.size(); part-- > 0; start /= axis[part].extent)
    offset += start % axis[part].extent * axis[part].stride;
  axis.clear();
  return true;
}

StridedView whole_value(const Graph& graph, ValueId id) {
  const auto dims = graph.value(id).shape.dims();
  StridedView view{.value = id, .dims = {dims.begin(), dims.end()}, .strides = Integers(dims.size(), 0)};
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0; stride *= dims[i])
    if (dims[i] != 1) view.strides[i] = stride;
  return view;
}

bool StridedView::reshape(const Shape& to) {
  FactoredView factored(*this);
  std::optional<StridedView> reshaped = factored.reshape(to) ? factored.strided() : std::nullopt;
  if (reshaped) *this = std::move(*reshaped);
  return reshaped.has_value();
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

std::vector<FactoredView> views_of(const GraphEdit& edit, ValueId id) {
  constexpr std::size_t most_steps = 64;
  const Graph& graph = edit.graph();
  if (graph.value(id).shape.elems() == 0) return {};
  std::vector<ValueId> chain{id};
  for (const Node* node = edit.producer_node(id); node != nullptr && chain.size() <= most_steps;
       node = edit.producer_node(chain.back())) {
    const ValueId above = viewed(graph, *node);
    if (above == no_id || graph.value(above).shape.elems() == 0) break;
    chain.push_back(above);
  }
  std::vector<FactoredView> views;
  for (std::size_t start = chain.size(); start-- > 0;) {
    FactoredView view(whole_value(graph, chain[start]));
    bool expressible = true;
    for (std::size_t i = start; expressible && i-- > 0;)
      expressible = through(view, graph, *edit.producer_node(chain[i]), chain[i]);
    if (expressible) views.push_back(std::move(view));
  }
  return views;
}

}  // namespace lenslet
