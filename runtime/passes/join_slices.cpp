// join_slices: on CUDA, Slices that partition a value along one axis (chunks of channels, as torch.export writes
// them) become one Split, which is one launch. On the CPU a Slice just before its reader leaves its elements in the
// cache.
#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/taken_slice.h"

namespace lenslet {
namespace {

/// Whether all readers of a part compute: moves would be merged with a Slice of their own (merge_moves).
bool is_computed_with(const Graph& graph, const std::vector<NodeId>& readers) {
  return !readers.empty() && std::ranges::none_of(readers, [&](NodeId id) {
    const Node& reader = graph.node(id);
    const std::string_view moves[] = {"Transpose", "Gather", "Slice", "Split"};
    return reader.op == nullptr || is_view(reader) || std::ranges::find(moves, reader.type()) != std::end(moves);
  });
}

}  // namespace

void join_slices(Graph& graph, const PassContext& context) {
  if (context.target.device.kind != DeviceKind::cuda) return;
  GraphEdit edit(graph);
  const std::vector<std::vector<NodeId>> readers = graph.readers();
  std::map<std::pair<ValueId, std::int64_t>, std::vector<std::pair<std::int64_t, NodeId>>> partitions;
  for (const NodeId id : edit.nodes())
    if (const auto part = taken_slice(graph, graph.node(id)))
      partitions[{graph.node(id).inputs[0], part->axis}].emplace_back(part->begin, id);
  for (auto& [of, parts] : partitions) {
    const auto [x, axis] = of;
    std::ranges::sort(parts);
    std::vector<std::int64_t> sizes;
    std::vector<ValueId> outputs;
    std::int64_t end = 0;
    for (const auto& [begin, id] : parts) {
      const ValueId y = graph.node(id).outputs[0];
      // A gap, an overlap, or a part that nobody reads.
      if (begin != end || !(edit.is_output(y) || is_computed_with(graph, readers[static_cast<std::size_t>(y)]))) break;
      outputs.push_back(y);
      sizes.push_back(graph.value(y).shape[static_cast<int>(axis)]);
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
