#include "runtime/passes/channel_affine.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
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
  if (node.outputs.empty() || node.outputs[0] == no_id) return std::nullopt;
  const Shape& y = graph.value(node.outputs[0]).shape;
  const std::vector<InputInfo> infos = graph.input_infos(node);
  for (std::size_t side = 0; side < node.inputs.size(); ++side) {
    const ValueId x = node.inputs[side];
    if (x == no_id || graph.value(x).is_constant() || !(graph.value(x).shape == y)) continue;
    if (auto affine = node.op->as_channel_affine(infos, side, y)) return AffineOf{x, *std::move(affine)};
  }
  return std::nullopt;
}

bool fold_affine(GraphEdit& edit, NodeId node) {
  const std::optional<AffineOf> of = affine_of(edit.graph(), edit.graph().node(node));
  if (!of) return false;
  const auto channels = static_cast<std::int64_t>(of->affine.factor.size());
  if (affine_channels(edit, of->x) != channels) return false;
  const NodeId producer = edit.producer(of->x);
  const Node& made_by = edit.graph().node(producer);
  Epilogue epilogue = *made_by.op->epilogue();
  const auto bias_input = static_cast<std::size_t>(epilogue.bias_input);
  std::vector<ValueId> inputs = made_by.inputs;
  inputs.resize(std::max(inputs.size(), bias_input + 1), no_id);
  std::vector<float> bias = product_bias(edit.graph(), inputs[bias_input], channels).value();
  if (!compose(of->affine, epilogue.bias_factor, epilogue.scale, bias)) return false;
  epilogue.bias_factor = 1;
  inputs[bias_input] = edit.add_constant(made_by.name + ":bias", Tensor::of<float>(Shape{channels}, bias));
  merge_into(edit, node, producer, made_by.op->with_epilogue(std::move(epilogue)), std::move(inputs));
  return true;
}

bool fold_affine_before(GraphEdit& edit, NodeId node) {
  const Graph& graph = edit.graph();
  const Node& conv = graph.node(node);
  const ValueId y = input_of(conv, 0), filter = input_of(conv, 1), bias_value = input_of(conv, 2);
  if (conv.type() != "Conv" || !edit.merges(y) || !graph.value(filter).is_constant() ||
      graph.value(filter).dtype != DType::f32)
    return false;
  const Epilogue& epilogue = *conv.op->epilogue();
  const auto zeros = conv.op->imagined_zeros(graph.input_infos(conv));
  const std::optional<AffineOf> of = affine_of(graph, *edit.producer_node(y));
  if (!of || !epilogue.scale.empty() || epilogue.bias_factor != 1 || epilogue.requantize || !zeros ||
      std::ranges::any_of(*zeros, [](std::int64_t pad) { return pad != 0; }))
    return false;
  const Shape& shape = graph.value(filter).shape;
  const auto k = static_cast<std::size_t>(shape[0]), c = static_cast<std::size_t>(shape[1]);
  const std::size_t taps = static_cast<std::size_t>(shape.elems()) / std::max<std::size_t>(k * c, 1);
  const std::size_t channels = of->affine.factor.size();
  const std::optional<std::vector<float>> bias = product_bias(graph, bias_value, shape[0]);
  if (!bias || k == 0 || c == 0 || channels % c != 0 || k % (channels / c) != 0) return false;
  Tensor scaled(DType::f32, shape);
  std::vector<float> sums(k);
  const auto from = graph.value(filter).constant.values<float>();
  const auto to = scaled.values<float>();
  bool finite = true;
  for (std::size_t i = 0; i < k; ++i) {
    double sum = double{(*bias)[i]};
    for (std::size_t j = 0; j < c; ++j) {
      const std::size_t channel = i / (k / (channels / c)) * c + j;
      for (std::size_t at = (i * c + j) * taps; at < (i * c + j + 1) * taps; ++at) {
        to[at] = static_cast<float>(double{from[at]} * of->affine.factor[channel]);
        sum += double{from[at]} * of->affine.offset[channel];
        finite = finite && std::isfinite(to[at]);
      }
    }
    sums[i] = static_cast<float>(sum);
    finite = finite && std::isfinite(sums[i]);
  }
  if (!finite) return false;
  const std::string name = conv.name;
  std::vector<ValueId> inputs = conv.inputs;
  inputs.resize(std::max<std::size_t>(inputs.size(), 3), no_id);
  inputs[0] = of->x;
  inputs[1] = edit.add_constant(name + ":filter", std::move(scaled));
  inputs[2] = edit.add_constant(name + ":bias", Tensor::of<float>(Shape{shape[0]}, sums));
  edit.replace(node, graph.node(node).op, std::move(inputs));
  edit.erase_unread(y);
  return true;
}

}  // namespace lenslet
