#include "runtime/passes/affine_before_conv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"

namespace lenslet {

namespace {

/// What a convolution becomes that reads x for factor[c] * x[c] + offset[c].
struct Folded {
  Tensor filter;
  std::vector<float> bias;
};

std::optional<Folded> folded(const Graph& graph, const Node& conv, const ChannelAffine& affine) {
  const ValueId filter = input_of(conv, 1);
  if (conv.type() != "Conv" || !graph.value(filter).is_constant() || graph.value(filter).dtype != DType::f32)
    return std::nullopt;
  const Epilogue& epilogue = *conv.op->epilogue();
  const auto zeros = conv.op->imagined_zeros(graph.input_infos(conv));
  const auto not_zero = [](auto value) { return value != 0; };
  if (!epilogue.scale.empty() || epilogue.bias_factor != 1 || epilogue.requantize || !zeros ||
      (std::ranges::any_of(*zeros, not_zero) && std::ranges::any_of(affine.offset, not_zero)))
    return std::nullopt;
  const Shape& shape = graph.value(filter).shape;
  const auto k = static_cast<std::size_t>(shape[0]), c = static_cast<std::size_t>(shape[1]);
  const std::size_t taps = static_cast<std::size_t>(shape.elems()) / std::max<std::size_t>(k * c, 1);
  const std::size_t channels = affine.factor.size();
  const std::optional<std::vector<float>> bias = product_bias(graph, input_of(conv, 2), shape[0]);
  if (!bias || k == 0 || c == 0 || channels % c != 0 || k % (channels / c) != 0) return std::nullopt;
  Folded made{Tensor(DType::f32, shape), std::vector<float>(k)};
  const auto from = graph.value(filter).constant.values<float>();
  const auto to = made.filter.values<float>();
  bool finite = true;
  for (std::size_t i = 0; i < k; ++i) {
    double sum = double{(*bias)[i]};
    for (std::size_t j = 0; j < c; ++j) {
      const std::size_t channel = i / (k / (channels / c)) * c + j;
      for (std::size_t at = (i * c + j) * taps; at < (i * c + j + 1) * taps; ++at) {
        to[at] = static_cast<float>(double{from[at]} * affine.factor[channel]);
        sum += double{from[at]} * affine.offset[channel];
        finite = finite && std::isfinite(to[at]);
      }
    }
    made.bias[i] = static_cast<float>(sum);
    finite = finite && std::isfinite(made.bias[i]);
  }
  return finite ? std::optional(std::move(made)) : std::nullopt;
}

void replace(GraphEdit& edit, NodeId conv, ValueId x, Folded by) {
  const std::string name = edit.graph().node(conv).name;
  std::vector<ValueId> inputs = edit.graph().node(conv).inputs;
  inputs.resize(std::max<std::size_t>(inputs.size(), 3), no_id);
  inputs[0] = x;
  inputs[1] = edit.add_constant(name + ":filter", std::move(by.filter));
  const Shape channels{static_cast<std::int64_t>(by.bias.size())};
  inputs[2] = edit.add_constant(name + ":bias", Tensor::of<float>(channels, by.bias));
  edit.replace(conv, edit.graph().node(conv).op, std::move(inputs));
}

}  // namespace

bool fold_affine_before(GraphEdit& edit, NodeId node) {
  const Graph& graph = edit.graph();
  const ValueId y = input_of(graph.node(node), 0);
  if (graph.node(node).type() != "Conv" || !edit.merges(y)) return false;
  const std::optional<AffineOf> of = affine_of(graph, *edit.producer_node(y));
  std::optional<Folded> by = of ? folded(graph, graph.node(node), of->affine) : std::nullopt;
  if (!by) return false;
  replace(edit, node, of->x, std::move(*by));
  edit.erase_unread(y);
  return true;
}

bool fold_factor_after(GraphEdit& edit, NodeId node, std::vector<std::vector<NodeId>>& readers) {
  const Graph& graph = edit.graph();
  const ValueId y = graph.node(node).outputs[0];
  const std::optional<AffineOf> of = affine_of(graph, graph.node(node));
  if (!of || std::ranges::any_of(of->affine.offset, [](double offset) { return offset != 0; })) return false;
  // One that no other reads, and that this function has not made: new filters take no more memory than the model's.
  const auto has_own_filter = [&](const Node& conv) {
    const auto filter = static_cast<std::size_t>(input_of(conv, 1));
    return filter < readers.size() && readers[filter].size() == 1;
  };
  std::vector<NodeId> convs, pools;
  std::vector<ValueId> scaled{y};
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    if (edit.is_output(scaled[i])) return false;
    for (const NodeId id : readers[static_cast<std::size_t>(scaled[i])]) {
      if (edit.erased(id)) continue;
      const Node& reader = graph.node(id);
      if (std::ranges::count(reader.inputs, scaled[i]) != 1 || reader.inputs[0] != scaled[i]) return false;
      if (reader.type() == "AveragePool" && reader.inputs.size() == 1) {
        pools.push_back(id);
        scaled.push_back(reader.outputs[0]);
      } else if (reader.type() == "Conv" && has_own_filter(reader)) {
        convs.push_back(id);
      } else {
        return false;
      }
    }
  }
  if (convs.empty()) return false;
  std::vector<Folded> made;
  for (const NodeId conv : convs) {
    std::optional<Folded> by = folded(graph, graph.node(conv), of->affine);
    if (!by) return false;
    made.push_back(std::move(*by));
  }
  const auto source = [&](NodeId id) {
    const ValueId x = graph.node(id).inputs[0];
    if (x != y) return x;
    readers[static_cast<std::size_t>(of->x)].push_back(id);
    return of->x;
  };
  for (const NodeId pool : pools) edit.replace(pool, graph.node(pool).op, {source(pool)});
  for (std::size_t i = 0; i < convs.size(); ++i) replace(edit, convs[i], source(convs[i]), std::move(made[i]));
  edit.erase_unread(y);
  return true;
}

}  // namespace lenslet
