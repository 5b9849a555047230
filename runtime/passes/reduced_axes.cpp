#include "runtime/passes/reduced_axes.h"

#include <algorithm>

namespace lenslet {

std::optional<std::vector<std::int64_t>> reduced_axes(const Graph& graph, const Node& node) {
  std::optional<std::vector<std::int64_t>> axes = integers_attribute(*node.op, "axes");
  if (const ValueId given = input_of(node, 1); given != no_id) {
    const Value& value = graph.value(given);
    if (!value.is_constant() || value.dtype != DType::i64) return std::nullopt;
    const auto values = value.constant.values<std::int64_t>();
    axes.emplace(values.begin(), values.end());
  }
  if (!axes || axes->empty()) return std::nullopt;
  for (std::int64_t& axis : *axes)
    if (axis < 0) axis += graph.value(node.inputs[0]).shape.rank();
  std::ranges::sort(*axes);
  return axes;
}

}  // namespace lenslet
