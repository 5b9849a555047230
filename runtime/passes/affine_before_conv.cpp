#include "runtime/passes/affine_before_conv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"

namespace lenslet {

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
  const auto not_zero = [](auto value) { return value != 0; };
  if (!of || !epilogue.scale.empty() || epilogue.bias_factor != 1 || epilogue.requantize || !zeros ||
      (std::ranges::any_of(*zeros, not_zero) && std::ranges::any_of(of->affine.offset, not_zero)))
    return false;
  const Shape shape = graph.value(filter).shape;  // copied: values are added
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
