#include "runtime/passes/taken_slice.h"

#include <algorithm>

#include "runtime/passes/known_integers.h"

namespace lenslet {

std::optional<TakenSlice> taken_slice(const Graph& graph, const Node& node) {
  if (node.op == nullptr || node.type() != "Slice" || !has_result(node)) return std::nullopt;
  const auto begins = known_integers(graph, node, "starts", 1), axes = known_integers(graph, node, "axes", 3),
             steps = known_integers(graph, node, "steps", 4);
  if (!begins || begins->size() != 1 || (steps && steps->front() != 1)) return std::nullopt;
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::int64_t first = axes ? axes->front() : 0, axis = first < 0 ? first + x.rank() : first,
                     begin = begins->front(), size = x[static_cast<int>(axis)];
  return TakenSlice{axis, std::clamp<std::int64_t>(begin < 0 ? begin + size : begin, 0, size)};
}

}  // namespace lenslet
