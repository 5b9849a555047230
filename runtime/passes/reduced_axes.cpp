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

}  // namespace lenslet
