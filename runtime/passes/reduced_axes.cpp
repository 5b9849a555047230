#include "runtime/passes/reduced_axes.h"

#include <algorithm>

#include "runtime/passes/known_integers.h"

namespace lenslet {

std::optional<std::vector<std::int64_t>> reduced_axes(const Graph& graph, const Node& node) {
  std::optional<std::vector<std::int64_t>> axes = known_integers(graph, node, "axes", 1);
  if (!axes || axes->empty()) return std::nullopt;
  for (std::int64_t& axis : *axes)
    if (axis < 0) axis += graph.value(node.inputs[0]).shape.rank();
  std::ranges::sort(*axes);
  return axes;
}

std::optional<std::vector<std::int64_t>> kept_axes(const Graph& graph, const Node& node) {
  return keeps_axes(node) ? reduced_axes(graph, node) : std::nullopt;
}

ValueId squared(const GraphEdit& edit, ValueId id) {
  if (const Node* const power = edit.made_by(id, "Pow"); power != nullptr)
    return scalar_constant(edit.graph(), power->inputs[1]) == 2.0F ? power->inputs[0] : no_id;
  const Node* const product = edit.made_by(id, "Mul");
  return product != nullptr && product->inputs[0] == product->inputs[1] ? product->inputs[0] : no_id;
}

}  // namespace lenslet
