#include "runtime/passes/taken_slice.h"

#include <algorithm>

namespace lenslet {
namespace {

/// The single element of a constant int64 value, or nullopt.
std::optional<std::int64_t> number(const Graph& graph, ValueId id) {
  if (id == no_id) return std::nullopt;
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.dtype != DType::i64 || value.constant.elems() != 1) return std::nullopt;
  return value.constant.values<std::int64_t>()[0];
}

}  // namespace

std::optional<TakenSlice> taken_slice(const Graph& graph, const Node& node) {
  if (node.op == nullptr || node.type() != "Slice" || !has_result(node)) return std::nullopt;
  const auto begin = number(graph, input_of(node, 1)), axis = number(graph, input_of(node, 3));
  const ValueId step = input_of(node, 4);
  if (!begin || !axis || (step != no_id && number(graph, step) != 1)) return std::nullopt;
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::int64_t at = *axis < 0 ? *axis + x.rank() : *axis, size = x[static_cast<int>(at)];
  return TakenSlice{at, std::clamp<std::int64_t>(*begin < 0 ? *begin + size : *begin, 0, size)};
}

}  // namespace lenslet
