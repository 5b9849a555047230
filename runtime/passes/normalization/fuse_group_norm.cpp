// fuse_group_norm: exporters before opset 18 spell GroupNormalization as Reshape to [N,G,...], InstanceNormalization,
// Reshape back, and a Mul and an Add by constants of each channel.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// A value with its mean and variance taken over groups of channels, then factor[c] * value + offset[c].
struct Groups {
  ValueId x = no_id;
  std::int64_t count = 1;
  double epsilon = 0;
  std::vector<double> factor, offset;  ///< by channel
};

/// What `id` = Reshape(InstanceNormalization(Reshape(x))) normalises.
std::optional<Groups> groups_of(const GraphEdit& edit, ValueId id) {
  const Graph& graph = edit.graph();
  const Node* const back = edit.made_by(id, "Reshape");
  if (back == nullptr || !edit.merges(back->inputs[0])) return std::nullopt;
  const Node* const norm = edit.made_by(back->inputs[0], "InstanceNormalization");
  if (norm == nullptr || !edit.merges(norm->inputs[0])) return std::nullopt;
  const Node* const first = edit.made_by(norm->inputs[0], "Reshape");
  if (first == nullptr) return std::nullopt;
  const Value& x = graph.value(first->inputs[0]);
  const Shape &rows = graph.value(norm->inputs[0]).shape, &y = graph.value(id).shape;
  const Value &scale = graph.value(norm->inputs[1]), &bias = graph.value(norm->inputs[2]);
  const std::optional<double> epsilon = attribute<double>(*norm->op, "epsilon");
  if (x.dtype != DType::f32 || !(x.shape == y) || y.rank() < 2 || y.elems() == 0 || rows[0] != y[0] ||
      y[1] % rows[1] != 0 || !epsilon)
    return std::nullopt;
  if (!scale.is_constant() || !bias.is_constant() || scale.dtype != DType::f32 || bias.dtype != DType::f32)
    return std::nullopt;
  Groups groups{.x = first->inputs[0], .count = rows[1], .epsilon = *epsilon, .factor = {}, .offset = {}};
  const auto scales = scale.constant.values<float>(), biases = bias.constant.values<float>();
  for (std::int64_t c = 0; c < y[1]; ++c) {
    const auto group = static_cast<std::size_t>(c / (y[1] / groups.count));
    groups.factor.push_back(double{scales[group]});
    groups.offset.push_back(double{biases[group]});
  }
  return groups;
}

void join(GraphEdit& edit, NodeId id) {
  Graph& graph = edit.graph();
  if (!has_result(graph.node(id))) return;
  ValueId at = graph.node(id).outputs[0];
  std::vector<ChannelAffine> affines;  // from the last one
  while (affines.size() < 2) {
    const Node& node = *edit.producer_node(at);
    auto affine = node.type() == "Mul" || node.type() == "Add" ? affine_of(graph, node) : std::nullopt;
    if (!affine || !edit.merges(affine->x)) break;
    at = affine->x;
    affines.push_back(std::move(affine->affine));
  }
  std::optional<Groups> groups = groups_of(edit, at);
  if (!groups) return;
  std::vector<float> scale, bias;
  for (std::size_t c = 0; c < groups->factor.size(); ++c) {
    double factor = groups->factor[c], offset = groups->offset[c];
    for (std::size_t i = affines.size(); i-- > 0;) {
      factor *= affines[i].factor[c];
      offset = offset * affines[i].factor[c] + affines[i].offset[c];
    }
    scale.push_back(static_cast<float>(factor));
    bias.push_back(static_cast<float>(offset));
    if (!std::isfinite(scale.back()) || !std::isfinite(bias.back())) return;
  }
  const std::string name = graph.node(id).name;
  const std::vector<ValueId> old = graph.node(id).inputs;
  const Shape channels{static_cast<std::int64_t>(scale.size())};
  std::vector<ValueId> inputs{groups->x, edit.add_constant(name + ":scale", Tensor::of<float>(channels, scale)),
                              edit.add_constant(name + ":bias", Tensor::of<float>(channels, bias))};
  auto norm = make_normalised_op("GroupNormalization", {{"epsilon", groups->epsilon}, {"num_groups", groups->count}},
                                 inputs.size());
  edit.replace(id, std::move(norm), std::move(inputs));
  for (const ValueId input : old) edit.erase_unread(input);
}

}  // namespace

void fuse_group_norm(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  // From the end: an Add or Mul that applies bias and scale is met before the Reshape that it reads.
  std::vector<NodeId> nodes = edit.nodes();
  std::ranges::reverse(nodes);
  for (const NodeId id : nodes)
    if (!edit.erased(id)) join(edit, id);
  edit.finish();
}

}  // namespace lenslet
