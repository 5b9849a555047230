// fuse_pool: fuses a MaxPool that is the only reader of a convolution into it, if the convolution's kernel can store
// maxima and the estimate is no longer than both. With stride 2 three quarters of the convolution's output are then
// never written. Runs after the choice, which it keeps: the chosen kernel is asked again for the convolution with the
// pool.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

/// A MaxPool as the attribute max_pool of a Conv: size, stride, and four pads, including what ceil_mode adds.
std::optional<Ints> windows_of(const Graph& graph, const Node& node) {
  if (node.type() != "MaxPool" || node.outputs.size() != 1) return std::nullopt;
  const Shape &x = graph.value(node.inputs[0]).shape, &y = graph.value(node.outputs[0]).shape;
  if (integers_attribute(*node.op, "dilations") != Ints{1, 1}) return std::nullopt;  // two axes, neighbours on them
  const Ints size = *integers_attribute(*node.op, "kernel_shape"), strides = *integers_attribute(*node.op, "strides"),
             pads = *integers_attribute(*node.op, "pads");
  constexpr std::int64_t most = 16;  // no kernel supports larger ones
  const bool pads_follow = attribute<std::string>(*node.op, "auto_pad") != "NOTSET";
  const std::int64_t window = size[0], stride = strides[0];
  Ints windows{window, stride, pads[0], pads[1]};
  if (size != Ints{window, window} || strides != Ints{stride, stride} || std::max(window, stride) > most)
    return std::nullopt;
  for (const int axis : {2, 3}) {
    const std::int64_t before = windows[static_cast<std::size_t>(axis)];
    const std::int64_t behind = (y[axis] - 1) * stride + window - x[axis] - before;
    // With auto_pad SAME the list has no pads; only images that need none are accepted.
    if (pads_follow && (before != 0 || behind > 0)) return std::nullopt;
    windows.push_back(std::max<std::int64_t>(0, behind));
  }
  return windows;
}

/// The node's operator with the pool and its kernel's candidate in the current formats, if its estimate is no longer
/// than both.
struct Pooled {
  std::shared_ptr<const Op> op;
  Candidate candidate;
};
std::optional<Pooled> pooled(const Graph& graph, const Node& node, const Node& pool, const Ints& windows,
                             const Target& target) {
  if (node.type() != "Conv" || input_of(node, 3) != no_id || integers_attribute(*node.op, "max_pool"))
    return std::nullopt;
  const Candidate& chosen = node.choice->candidate;
  auto op = with_attributes(*node.op, {{"max_pool", windows}}, node.inputs.size());
  const Offer offer =
      node.choice->kernel->offer(Problem(op, graph.input_infos(node), graph.output_types(pool)), target);
  const auto same = std::find_if(offer.candidates.begin(), offer.candidates.end(), [&](const Candidate& candidate) {
    return candidate.inputs == chosen.inputs && candidate.outputs == chosen.outputs &&
           candidate.estimated_us <= chosen.estimated_us + pool.choice->candidate.estimated_us;
  });
  if (same == offer.candidates.end()) return std::nullopt;
  return Pooled{std::move(op), *same};
}

}  // namespace

void fuse_pool(Graph& graph, const PassContext& context) {
  GraphEdit edit(graph);
  for (const NodeId n : edit.nodes()) {
    const Node& pool = graph.node(n);
    const std::optional<Ints> windows = windows_of(graph, pool);
    if (!windows || !edit.merges(pool.inputs[0])) continue;
    const NodeId maker = edit.producer(pool.inputs[0]);
    auto with_pool = pooled(graph, graph.node(maker), pool, *windows, context.target);
    if (!with_pool || graph.value(pool.outputs[0]).format != graph.value(pool.inputs[0]).format) continue;
    Node& conv = graph.node(maker);
    conv.op = std::move(with_pool->op);
    set_candidate(conv, std::move(with_pool->candidate));
    const std::vector<ValueId> outputs = pool.outputs;
    edit.erase(n);
    edit.set_outputs(maker, outputs);
  }
  edit.finish();
}

}  // namespace lenslet
