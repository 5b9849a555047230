#include "runtime/passes/known_integers.h"

namespace lenslet {

std::optional<std::vector<std::int64_t>> known_integers(const Graph& graph, const Node& node,
                                                        std::string_view attribute, std::size_t input) {
  if (auto list = integers_attribute(*node.op, attribute)) return list;
  const ValueId id = input_of(node, input);
  if (id == no_id || !graph.value(id).is_constant()) return std::nullopt;
  const Tensor wide = graph.value(id).constant.to_dtype(DType::i64);
  return std::vector<std::int64_t>(wide.values<std::int64_t>().begin(), wide.values<std::int64_t>().end());
}

}  // namespace lenslet
