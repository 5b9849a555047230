// find_shuffles: Reshape to groups of channels, Transpose of the two, Reshape back becomes one ChannelShuffle, which
// also works in nhwc. It absorbs a Concat before it, and Slices or a Split after it that take equal parts.
#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/taken_slice.h"

namespace lenslet {
namespace {

/// The input of a Reshape whose result only `reader` reads; else no_id.
ValueId renamed(const GraphEdit& edit, ValueId id) {
  if (!edit.merges(id)) return no_id;
  const Node& node = *edit.producer_node(id);
  return is_view(node) ? node.inputs[0] : no_id;
}

/// G for a Transpose from [N,G,C/G,...] to [N,C/G,G,...] that keeps the other axes; else 0.
std::int64_t swapped_groups(const Graph& graph, const Node& node) {
  if (node.type() != "Transpose") return 0;
  const auto perm = attribute<std::vector<std::int64_t>>(*node.op, "perm");
  if (!perm || perm->size() < 4) return 0;
  for (std::size_t i = 0; i < perm->size(); ++i)
    if ((*perm)[i] != (i == 1 ? 2 : i == 2 ? 1 : static_cast<std::int64_t>(i))) return 0;
  return graph.value(node.inputs[0]).shape[1];
}

/// Whether `grouped` [N,G,C/G,...] is the image `x` [N,C,H,W] with its channels in groups.
bool groups_of(const Shape& grouped, const Shape& x) {
  if (x.rank() != 4 || grouped[0] != x[0] || grouped[1] * grouped[2] != x[1]) return false;
  if (grouped.rank() == 4) return grouped[3] == x[2] * x[3];
  return grouped.rank() == 5 && grouped[3] == x[2] && grouped[4] == x[3];
}

bool is_channels(std::optional<std::int64_t> axis) { return axis && (*axis == 1 || *axis == -3); }

/// The inputs of the Concat of `groups` equal channel groups that makes x, if x has no other reader; else x.
std::vector<ValueId> groups_apart(GraphEdit& edit, ValueId x, std::int64_t groups) {
  if (!edit.merges(x)) return {x};
  const Node& node = *edit.producer_node(x);
  const auto axis = node.type() == "Concat" ? attribute<std::int64_t>(*node.op, "axis") : std::nullopt;
  if (!is_channels(axis) || static_cast<std::int64_t>(node.inputs.size()) != groups) return {x};
  const Graph& graph = edit.graph();
  for (const ValueId input : node.inputs)
    if (!(graph.value(input).shape == graph.value(node.inputs[0]).shape)) return {x};
  std::vector<ValueId> inputs = node.inputs;
  edit.erase(edit.producer(x));
  return inputs;
}

/// A value that holds an image's channels from `begin` on.
struct ChannelPart {
  std::int64_t begin = 0;
  ValueId value = no_id;
};

/// The channel ranges of x taken by a Slice of step 1 along the channels, or a Split along them; empty for any other
/// node.
std::vector<ChannelPart> parts_taken(const Graph& graph, const Node& node, ValueId x) {
  if (node.op == nullptr || input_of(node, 0) != x) return {};
  std::vector<ChannelPart> parts;
  if (node.type() == "Split" && is_channels(attribute<std::int64_t>(*node.op, "axis"))) {
    std::int64_t begin = 0;
    for (const ValueId output : node.outputs) {
      if (output == no_id) return {};
      parts.push_back({begin, output});
      begin += graph.value(output).shape[1];
    }
  } else if (const auto taken = taken_slice(graph, node); taken && taken->axis == 1) {
    parts.push_back({taken->begin, node.outputs[0]});
  }
  return parts;
}

/// A shuffle writes its equal parts itself if each reader takes exactly one of them.
void write_parts(GraphEdit& edit, NodeId shuffle) {
  const Graph& graph = edit.graph();
  const ValueId y = graph.node(shuffle).outputs[0];
  std::vector<ChannelPart> parts;
  std::vector<NodeId> readers;
  for (const NodeId n : edit.nodes()) {
    const std::vector<ChannelPart> taken = parts_taken(graph, graph.node(n), y);
    if (taken.empty()) continue;
    parts.insert(parts.end(), taken.begin(), taken.end());
    readers.push_back(n);
  }
  if (parts.size() < 2 || static_cast<int>(readers.size()) != edit.uses(y)) return;

  const std::int64_t groups = *attribute<std::int64_t>(*graph.node(shuffle).op, "groups");
  const std::int64_t channels = graph.value(y).shape[1], count = static_cast<std::int64_t>(parts.size());
  if (channels % (count * groups) != 0) return;
  std::ranges::sort(parts, {}, &ChannelPart::begin);
  std::vector<ValueId> outputs;
  for (const ChannelPart& part : parts) {
    const std::int64_t size = channels / count, begin = static_cast<std::int64_t>(outputs.size()) * size;
    if (part.begin != begin || graph.value(part.value).shape[1] != size) return;
    outputs.push_back(part.value);
  }
  for (const NodeId reader : readers) edit.erase(reader);
  const std::vector<ValueId> inputs = graph.node(shuffle).inputs;
  const AttributeList attributes{{"groups", groups}, {"num_outputs", count}};
  edit.replace(shuffle, make_normalised_op("ChannelShuffle", attributes, inputs.size(), outputs.size()), inputs);
  edit.set_outputs(shuffle, std::move(outputs));
}

}  // namespace

void find_shuffles(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const NodeId last : edit.nodes()) {
    if (edit.erased(last) || !is_view(graph.node(last))) continue;
    const ValueId swapped = graph.node(last).inputs[0];
    if (!edit.merges(swapped)) continue;
    const NodeId transpose = edit.producer(swapped);
    const std::int64_t groups = swapped_groups(graph, graph.node(transpose));
    if (groups == 0) continue;
    const ValueId grouped = graph.node(transpose).inputs[0], x = renamed(edit, grouped);
    if (x == no_id) continue;
    const Shape &shape = graph.value(x).shape, &result = graph.value(graph.node(last).outputs[0]).shape;
    if (!groups_of(graph.value(grouped).shape, shape) || !(result == shape)) continue;
    const NodeId reshape = edit.producer(grouped);
    const std::vector<ValueId> inputs = groups_apart(edit, x, groups);
    edit.replace(last, make_normalised_op("ChannelShuffle", {{"groups", groups}}, inputs.size()), inputs);
    edit.erase(transpose);
    edit.erase(reshape);
    write_parts(edit, last);
  }
  edit.finish();
}

}  // namespace lenslet
