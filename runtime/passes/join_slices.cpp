// join_slices: on CUDA, Slices that together cut a value along one axis (chunks of channels, as torch.export writes
// them) become one Split, which is one launch. On the CPU a Slice just before its reader leaves its elements in the
// cache.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// Elements of one axis from `begin` on that a Slice takes.
struct Taken {
  std::int64_t axis = 0, begin = 0;
};

std::optional<std::int64_t> number(const Graph& graph, ValueId id) {
  if (id == no_id) return std::nullopt;
  const Value& value = graph.value(id);
  if (!value.is_constant() || value.dtype != DType::i64 || value.constant.elems() != 1) return std::nullopt;
  return value.constant.values<std::int64_t>()[0];
}

std::optional<Taken> taken(const Graph& graph, const Node& node) {
  if (node.type() != "Slice" || !has_result(node)) return std::nullopt;
  const auto begin = number(graph, input_of(node, 1)), axis = number(graph, input_of(node, 3));
  const ValueId step = input_of(node, 4);
  if (!begin || !axis || (step != no_id && number(graph, step) != 1)) return std::nullopt;
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::int64_t at = *axis < 0 ? *axis + x.rank() : *axis, size = x[static_cast<int>(at)];
  return Taken{at, std::clamp<std::int64_t>(*begin < 0 ? *begin + size : *begin, 0, size)};
}

}  // namespace

void join_slices(Graph& graph, const PassContext& context) {
  if (context.target.device.kind != DeviceKind::cuda) return;
  GraphEdit edit(graph);
  std::map<std::pair<ValueId, std::int64_t>, std::vector<std::pair<std::int64_t, NodeId>>> cuts;
  for (const NodeId id : edit.nodes())
    if (const auto part = taken(graph, graph.node(id)))
      cuts[{graph.node(id).inputs[0], part->axis}].emplace_back(part->begin, id);
  for (auto& [of, parts] : cuts) {
    const auto [x, axis] = of;
    std::ranges::sort(parts);
    std::vector<std::int64_t> sizes;
    std::vector<ValueId> outputs;
    std::int64_t end = 0;
    for (const auto& [begin, id] : parts) {
      if (begin != end) break;  // a gap, or an overlap
      outputs.push_back(graph.node(id).outputs[0]);
      sizes.push_back(graph.value(outputs.back()).shape[static_cast<int>(axis)]);
      end += sizes.back();
    }
    if (parts.size() < 2 || outputs.size() != parts.size() || end != graph.value(x).shape[static_cast<int>(axis)] ||
        std::ranges::count(sizes, 0) != 0)
      continue;
    // The first in the order of the nodes, so that all readers come later.
    const NodeId first = std::ranges::min(parts, {}, &std::pair<std::int64_t, NodeId>::second).second;
    for (const auto& [begin, id] : parts)
      if (id != first) edit.erase(id);
    const AttributeList attributes{{"axis", axis}, {"num_outputs", std::ssize(sizes)}, {"split", sizes}};
    edit.replace(first, make_normalised_op("Split", attributes, 1, outputs.size()), {x});
    edit.set_outputs(first, std::move(outputs));
  }
  edit.finish();
}

}  // namespace lenslet
