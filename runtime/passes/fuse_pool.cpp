// fuse_pool: a MaxPool of 2x2 with stride 2 that alone reads a convolution goes into it, where the kernel chosen for
// that one can store maxima: three quarters of its output are then never written. It comes after the choice, which it
// does not change: what a kernel offers for the convolution with the pool is asked for again.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

bool is_max_of_four(const Graph& graph, const Node& node) {
  if (node.type() != "MaxPool" || node.outputs.size() != 1) return false;
  const Shape& x = graph.value(node.inputs[0]).shape;
  return x.rank() == 4 && integers_attribute(*node.op, "kernel_shape") == Ints{2, 2} &&
         integers_attribute(*node.op, "strides") == Ints{2, 2} &&
         integers_attribute(*node.op, "dilations") == Ints{1, 1} &&
         integers_attribute(*node.op, "pads") == Ints{0, 0, 0, 0} &&
         graph.value(node.outputs[0]).shape == x.with(2, x[2] / 2).with(3, x[3] / 2);
}

/// The node's operator with the pool, and its kernel's candidate for that, which is configured as the chosen one; or
/// nothing.
struct Pooled {
  std::shared_ptr<const Op> op;
  Candidate candidate;
};
std::optional<Pooled> pooled(const Graph& graph, const Node& node, const Node& pool, const Target& target) {
  if (node.type() != "Conv" || node.choice == nullptr || (node.inputs.size() > 3 && node.inputs[3] != no_id))
    return std::nullopt;
  const Candidate& chosen = node.choice->candidate;
  auto op = with_attributes(*node.op, {{"max_pool", std::int64_t{2}}}, node.inputs.size());
  const Offer offer =
      node.choice->kernel->offer(Problem(op, graph.input_infos(node), graph.output_types(pool)), target);
  const auto same = std::find_if(offer.candidates.begin(), offer.candidates.end(), [&](const Candidate& candidate) {
    return candidate.config == chosen.config && candidate.inputs == chosen.inputs &&
           candidate.outputs == chosen.outputs;
  });
  if (same == offer.candidates.end()) return std::nullopt;
  return Pooled{std::move(op), *same};
}

}  // namespace

void fuse_pool(Graph& graph, const PassContext& context) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& pool = graph.nodes[n];
    if (!is_max_of_four(graph, pool) || !edit.merges(pool.inputs[0])) continue;
    const NodeId maker = edit.producer(pool.inputs[0]);
    auto with_pool = pooled(graph, graph.node(maker), pool, context.target);
    if (!with_pool || graph.value(pool.outputs[0]).format != graph.value(pool.inputs[0]).format) continue;
    Node& conv = graph.node(maker);
    conv.op = std::move(with_pool->op);
    set_candidate(conv, std::move(with_pool->candidate));
    const std::vector<ValueId> outputs = pool.outputs;
    edit.erase(static_cast<NodeId>(n));
    edit.set_outputs(maker, outputs);
  }
  edit.finish();
}

}  // namespace lenslet
