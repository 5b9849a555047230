#include "runtime/passes/channel_affine.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "runtime/passes/epilogue.h"

namespace lenslet {
namespace {

/// Composes the affine with factors `scale` (may be empty) and summands beta * `bias`, rounded once; false if a result
/// is not finite.
bool compose(const ChannelAffine& affine, double beta, std::vector<float>& scale, std::vector<float>& bias) {
  const std::size_t channels = affine.factor.size();
  std::vector<float> new_scale(channels), new_bias(channels);
  bool finite = true;
  for (std::size_t k = 0; k < channels; ++k) {
    const double old_scale = scale.empty() ? 1 : double{scale[k]}, old_bias = beta * double{bias[k]};
    new_scale[k] = static_cast<float>(old_scale * affine.factor[k]);
    new_bias[k] = static_cast<float>(old_bias * affine.factor[k] + affine.offset[k]);
    finite = finite && std::isfinite(new_scale[k]) && std::isfinite(new_bias[k]);
  }
  if (!finite) return false;
  scale = std::move(new_scale);
  bias = std::move(new_bias);
  // Nothing to multiply, nothing to store.
  if (std::all_of(scale.begin(), scale.end(), [](float s) { return s == 1.0F; })) scale.clear();
  return true;
}

}  // namespace

std::optional<std::vector<float>> product_bias(const Graph& graph, ValueId id, std::int64_t channels) {
  if (id == no_id) return std::vector<float>(static_cast<std::size_t>(channels), 0.0F);
  const Value& bias = graph.value(id);
  if (!bias.is_constant() || bias.dtype != DType::f32) return std::nullopt;
  const auto values = bias.constant.values<float>();
  if (values.size() == 1) return std::vector<float>(static_cast<std::size_t>(channels), values[0]);
  const bool by_channel =
      values.size() == static_cast<std::size_t>(channels) && bias.shape[bias.shape.rank() - 1] == channels;
  if (!by_channel) return std::nullopt;
  return std::vector<float>(values.begin(), values.end());
}

std::optional<std::int64_t> affine_channels(const GraphEdit& edit, ValueId id) {
  if (!edit.merges(id)) return std::nullopt;
  const Graph& graph = edit.graph();
  const Node& node = *edit.producer_node(id);
  const Epilogue* epilogue = node.op->epilogue();
  const auto input = [&](int i) { return input_of(node, static_cast<std::size_t>(i)); };
  if (!takes_more(epilogue) || !of_product(epilogue) || input(epilogue->residual_input) != no_id) return std::nullopt;
  const std::int64_t channels = graph.value(id).shape[epilogue->channel_axis];
  if (!graph.value(input(epilogue->weight_input)).is_constant() ||
      !product_bias(graph, input(epilogue->bias_input), channels))
    return std::nullopt;
  return channels;
}

std::optional<AffineOf> affine_of(const Graph& graph, const Node& node) {
  if (!has_result(node)) return std::nullopt;
  const Shape& y = graph.value(node.outputs[0]).shape;
  const std::vector<InputInfo> infos = graph.input_infos(node);
  for (std::size_t side = 0; side < node.inputs.size(); ++side) {
    const ValueId x = node.inputs[side];
    if (x == no_id || graph.value(x).is_constant() || !(graph.value(x).shape == y)) continue;
    if (auto affine = node.op->as_channel_affine(infos, side, y)) return AffineOf{x, *std::move(affine)};
  }
  return std::nullopt;
}

std::optional<AffineProduct> affine_product(const GraphEdit& edit, ValueId id, const ChannelAffine& affine) {
  const auto channels = static_cast<std::int64_t>(affine.factor.size());
  if (affine_channels(edit, id) != channels) return std::nullopt;
  const Node& product = *edit.producer_node(id);
  AffineProduct changed{*product.op->epilogue(), {}};
  const auto bias_input = static_cast<std::size_t>(changed.epilogue.bias_input);
  changed.bias = product_bias(edit.graph(), input_of(product, bias_input), channels).value();
  if (!compose(affine, changed.epilogue.bias_factor, changed.epilogue.scale, changed.bias)) return std::nullopt;
  changed.epilogue.bias_factor = 1;
  return changed;
}

std::vector<ValueId> inputs_of(GraphEdit& edit, NodeId product, const AffineProduct& changed) {
  const auto bias_input = static_cast<std::size_t>(changed.epilogue.bias_input);
  std::vector<ValueId> inputs = edit.graph().node(product).inputs;
  inputs.resize(std::max(inputs.size(), bias_input + 1), no_id);
  const auto channels = static_cast<std::int64_t>(changed.bias.size());
  inputs[bias_input] =
      edit.add_constant(edit.graph().node(product).name + ":bias", Tensor::of<float>(Shape{channels}, changed.bias));
  return inputs;
}

bool fold_affine(GraphEdit& edit, NodeId node) {
  const std::optional<AffineOf> of = affine_of(edit.graph(), edit.graph().node(node));
  if (!of) return false;
  const std::optional<AffineProduct> changed = affine_product(edit, of->x, of->affine);
  if (!changed) return false;
  const NodeId producer = edit.producer(of->x);
  std::vector<ValueId> inputs = inputs_of(edit, producer, *changed);
  merge_into(edit, node, producer, edit.graph().node(producer).op->with_epilogue(changed->epilogue), std::move(inputs));
  return true;
}

}  // namespace lenslet
