// fuse_separable: fuses a depthwise convolution and the 1x1 convolution that is its only reader into one step,
// SeparableConv, if a kernel computes both in less time than the two chosen kernels. The value between is then never
// written. Runs after the choice and changes no format.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/conv/in_formats.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

/// A Conv whose kernel was not forced.
bool chosen_conv(const Node& node) {
  return node.op != nullptr && node.type() == "Conv" && node.choice->reason != "forced" &&
         !integers_attribute(*node.op, "max_pool");
}

/// Depthwise with equal channel counts of x and y.
bool is_depthwise(const Graph& graph, const Node& node) {
  const Shape &x = graph.value(node.inputs[0]).shape, &w = graph.value(node.inputs[1]).shape;
  return x.rank() == 4 && w[0] == x[1] && integer_attribute(*node.op, "group") == x[1] && input_of(node, 3) == no_id;
}

/// Behind a depthwise one, of four dimensions as that is.
bool is_pointwise(const Graph& graph, const Node& node) {
  const Shape &x = graph.value(node.inputs[0]).shape, &w = graph.value(node.inputs[1]).shape;
  return w[2] == 1 && w[3] == 1 && integer_attribute(*node.op, "group") == 1 &&
         graph.value(node.outputs[0]).shape == x.with(1, w[0]) &&
         integers_attribute(*node.op, "pads") == Ints{0, 0, 0, 0};
}

/// How far below the two halves' estimates that of both has to be. In 16 bits those count memory for what L2 holds:
/// measured side by side, halves of MobileNetV2 took 0.55 to 1.07 of them (H100). On an H200 MobileNetV2 in fp16 at 16
/// and 64 takes 0.272 and 0.656 ms at 0.78, where 2 of 42 problems were joined that take longer, and 0.265 and 0.591 at
/// 0.85; at 1, 4 and 8 it is the same. In TF32 they took 0.94 to 1.2, but at batch 1 a network gains less than its
/// layers alone: at 1, 16 and 64 images 0.1283, 0.424 and 1.244 ms at 0.85, 0.1311, 0.400 and 1.195 at 1.
double share_of(const Value& y) { return y.dtype == DType::f32 && y.shape[0] > 1 ? 1.0 : 0.85; }

/// The fused step, if a kernel offers it in the current formats at a lower estimate.
struct Joined {
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  Choice choice;
};
std::optional<Joined> joined(const Graph& graph, const Node& depthwise, const Node& pointwise, const Target& target) {
  Joined both;
  both.inputs = {depthwise.inputs[0], depthwise.inputs[1],    input_of(depthwise, 2),
                 pointwise.inputs[1], input_of(pointwise, 2), input_of(pointwise, 3)};
  AttributeList attributes;
  for (const auto& [name, value] : depthwise.op->attributes()) attributes.emplace_back("depthwise_" + name, value);
  for (const auto& [name, value] : pointwise.op->attributes()) attributes.emplace_back(name, value);
  both.op = make_normalised_op("SeparableConv", attributes, both.inputs.size());
  Node node = pointwise;
  node.op = both.op;
  node.inputs = both.inputs;
  const Choice &first = *depthwise.choice, &second = *pointwise.choice;
  const double apart_us = first.candidate.estimated_us + second.candidate.estimated_us;
  std::optional<Choice> choice = choose_in_formats(graph, node, graph.input_infos(node), target);
  if (!choice || choice->candidate.estimated_us >= apart_us * share_of(graph.value(node.outputs[0])))
    return std::nullopt;
  both.choice = std::move(*choice);
  const Candidate& candidate = both.choice.candidate;
  both.choice.reason = fmt::format("both halves in one kernel: {:.1f} us, by {} and {} {:.1f} us",
                                   candidate.estimated_us, first.kernel->name(), second.kernel->name(), apart_us);
  both.choice.rows = {{.kernel = both.choice.kernel, .refusal = {}, .candidate = candidate},
                      {.kernel = first.kernel, .refusal = {}, .candidate = first.candidate},
                      {.kernel = second.kernel, .refusal = {}, .candidate = second.candidate}};
  return both;
}

}  // namespace

void fuse_separable(Graph& graph, const PassContext& context) {
  if (kernels_of("SeparableConv", context.target.device.kind).empty()) return;
  GraphEdit edit(graph);
  for (const NodeId id : edit.nodes()) {
    const Node& pointwise = graph.node(id);
    if (!chosen_conv(pointwise) || !edit.merges(pointwise.inputs[0])) continue;
    const NodeId maker = edit.producer(pointwise.inputs[0]);
    const Node& depthwise = graph.node(maker);
    if (!chosen_conv(depthwise) || !is_depthwise(graph, depthwise) || !is_pointwise(graph, pointwise)) continue;
    std::optional<Joined> both = joined(graph, depthwise, pointwise, context.target);
    if (!both) continue;
    edit.replace(id, std::move(both->op), std::move(both->inputs));
    graph.node(id).choice = std::make_shared<const Choice>(std::move(both->choice));
    edit.erase(maker);
  }
  edit.finish();
}

}  // namespace lenslet
