// fuse_preactivation: a BatchNormalization and its activation, or a LayerNormalization, that only 1x1 convolutions read
// go into these (PreactivatedConv), if kernels compute them so in less time than the chosen ones. Where others read the
// value before it (ResNetV2, DenseNet), the first could not be folded; the second is one launch and two passes over
// memory less. Runs after the choice and changes no format.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/conv/preactivated.h"
#include "runtime/passes/conv/in_formats.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

using Ints = std::vector<std::int64_t>;

bool not_forced(const Node& node, std::string_view type) {
  return node.op != nullptr && node.type() == type && node.choice != nullptr && node.choice->reason != "forced";
}

/// A 1x1 convolution that reads `x` as its input alone.
bool is_pointwise(const Graph& graph, const Node& node, ValueId x) {
  if (!not_forced(node, "Conv") || integers_attribute(*node.op, "max_pool") || node.inputs[0] != x) return false;
  for (std::size_t i = 1; i < node.inputs.size(); ++i)
    if (node.inputs[i] == x) return false;
  const Shape& w = graph.value(node.inputs[1]).shape;
  return w.rank() == 4 && w[2] == 1 && w[3] == 1 && integer_attribute(*node.op, "group") == 1 &&
         integers_attribute(*node.op, "pads") == Ints{0, 0, 0, 0};
}

Tensor floats(const std::vector<double>& values) {
  const std::vector<float> rounded(values.begin(), values.end());
  return Tensor::of<float>(Shape{std::ssize(rounded)}, rounded);
}

/// What PreactivatedConv computes of x before the convolution.
struct Before {
  AttributeList attributes;  ///< preactivation_attributes()
  Tensor scale, shift;       ///< [C]
};

/// Of a BatchNormalization and its activation.
std::optional<Before> batch_norm(const Graph& graph, const Node& norm) {
  if (graph.value(norm.outputs[0]).shape.rank() != 4) return std::nullopt;
  Epilogue open = *norm.op->epilogue();
  const Activation activation = std::exchange(open.activation, {});
  std::vector<InputInfo> inputs = graph.input_infos(norm);
  inputs[0].type.dtype = DType::f32;
  const auto affine = norm.op->with_epilogue(open)->as_channel_affine(inputs, 0, graph.value(norm.outputs[0]).shape);
  if (!affine) return std::nullopt;
  return Before{.attributes = preactivation_attributes(activation),
                .scale = floats(affine->factor),
                .shift = floats(affine->offset)};
}

/// Of a LayerNormalization of dense rows without a residual.
std::optional<Before> layer_norm(const Graph& graph, const Node& norm) {
  if (input_of(norm, 3) != no_id) return std::nullopt;
  const Value& x = graph.value(norm.inputs[0]);
  const int last = x.shape.rank() - 1;
  const std::int64_t axis = integer_attribute(*norm.op, "axis").value_or(0), c = x.shape[last];
  if ((axis != -1 && axis != last) || x.format != formats::nchw) return std::nullopt;
  Before before;
  const auto parameter = [&](std::size_t i, float otherwise, Tensor& to) {
    if (input_of(norm, i) == no_id) {
      to = floats(std::vector<double>(static_cast<std::size_t>(c), otherwise));
      return true;
    }
    const Value& value = graph.value(norm.inputs[i]);
    if (!value.is_constant() || value.shape.elems() != c) return false;
    to = value.constant.to_dtype(DType::f32).reshaped({c});
    return true;
  };
  if (!parameter(1, 1, before.scale) || !parameter(2, 0, before.shift)) return std::nullopt;
  before.attributes = preactivation_attributes({}, static_cast<float>(*attribute<double>(*norm.op, "epsilon")));
  return before;
}

/// A convolution's fused step.
struct Joined {
  NodeId conv = no_id;
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;  ///< scale and shift are missing
  Choice choice;
};

class Preactivations {
 public:
  Preactivations(Graph& graph, const Target& target)
      : graph_(graph), target_(target), edit_(graph), readers_(graph.readers()) {}

  void run() {
    for (const NodeId id : edit_.nodes()) {
      if (edit_.erased(id)) continue;
      const Node norm = graph_.node(id);  // copied: values are added
      const bool rows = not_forced(norm, "LayerNormalization");
      if ((!rows && !not_forced(norm, "BatchNormalization")) || !has_result(norm)) continue;
      const auto statistics = std::span(norm.outputs).subspan(1);
      if (std::ranges::any_of(statistics, [](ValueId more) { return more != no_id; })) continue;
      const Value &x = graph_.value(norm.inputs[0]), &y = graph_.value(norm.outputs[0]);
      if (x.is_constant() || x.dtype != y.dtype || x.format != y.format) continue;  // x takes y's place
      const std::optional<Before> before = rows ? layer_norm(graph_, norm) : batch_norm(graph_, norm);
      std::vector<NodeId> convs;
      if (!before || !find_convs(norm.outputs[0], before->scale.elems(), rows, convs) || convs.empty()) continue;
      join(id, norm, *before, convs);
    }
    edit_.finish();
  }

 private:
  /// All readers of `y`: they must be 1x1 convolutions of `channels` channels, of y itself or of views of its rows.
  bool find_convs(ValueId y, std::int64_t channels, bool views, std::vector<NodeId>& convs) const {
    if (edit_.is_output(y)) return false;
    for (const NodeId id : readers_[static_cast<std::size_t>(y)]) {
      if (edit_.erased(id)) return false;
      const Node& node = graph_.node(id);
      if (is_pointwise(graph_, node, y)) {
        if (graph_.value(y).shape[1] != channels) return false;
        convs.push_back(id);
      } else if (!views || !is_view(node) || node.inputs[0] != y || !has_result(node) ||
                 !find_convs(node.outputs[0], channels, views, convs)) {
        return false;
      }
    }
    return true;
  }

  void join(NodeId id, const Node& norm, const Before& before, const std::vector<NodeId>& convs) {
    double apart_us = norm.choice->candidate.estimated_us, together_us = 0;
    std::vector<Joined> all;
    for (const NodeId conv : convs) {
      std::optional<Joined> one = joined(conv, before);
      if (!one) return;
      apart_us += graph_.node(conv).choice->candidate.estimated_us;
      together_us += one->choice.candidate.estimated_us;
      all.push_back(std::move(*one));
    }
    if (together_us >= apart_us) return;
    const ValueId x = norm.inputs[0], y = norm.outputs[0];
    const ValueId scale = edit_.add_constant(norm.name + ":scale", before.scale),
                  shift = edit_.add_constant(norm.name + ":shift", before.shift);
    for (Joined& one : all) {
      if (one.inputs[0] == y) one.inputs[0] = x;
      one.inputs[1] = scale, one.inputs[2] = shift;
      one.choice.reason =
          fmt::format("with {} before it: {:.1f} us, apart {:.1f} us", norm.name, together_us, apart_us);
      edit_.replace(one.conv, std::move(one.op), std::move(one.inputs));
      graph_.node(one.conv).choice = std::make_shared<const Choice>(std::move(one.choice));
    }
    for (const NodeId reader : readers_[static_cast<std::size_t>(y)])
      if (const Node view = graph_.node(reader); view.inputs[0] == y) {
        std::vector<ValueId> inputs = view.inputs;
        inputs[0] = x;
        edit_.replace(reader, view.op, std::move(inputs));
      }
    edit_.erase(id);
  }

  std::optional<Joined> joined(NodeId id, const Before& before) const {
    const Node& conv = graph_.node(id);
    Joined both;
    both.conv = id;
    both.inputs = {conv.inputs[0], no_id, no_id, conv.inputs[1], input_of(conv, 2), input_of(conv, 3)};
    AttributeList attributes = conv.op->attributes();
    attributes.insert(attributes.end(), before.attributes.begin(), before.attributes.end());
    both.op = make_normalised_op("PreactivatedConv", attributes, both.inputs.size());
    Node node = conv;
    node.op = both.op;
    node.inputs = both.inputs;
    std::vector<InputInfo> inputs = graph_.input_infos(node);
    inputs[1] = {.present = true, .type = {DType::f32, before.scale.shape()}, .constant = &before.scale};
    inputs[2] = {.present = true, .type = {DType::f32, before.shift.shape()}, .constant = &before.shift};
    std::optional<Choice> choice = choose_in_formats(graph_, node, inputs, target_);
    if (!choice) return std::nullopt;
    both.choice = std::move(*choice);
    both.choice.rows = {{.kernel = both.choice.kernel, .refusal = {}, .candidate = both.choice.candidate},
                        {.kernel = conv.choice->kernel, .refusal = {}, .candidate = conv.choice->candidate}};
    return both;
  }

  Graph& graph_;
  const Target& target_;
  GraphEdit edit_;
  const std::vector<std::vector<NodeId>> readers_;
};

}  // namespace

void fuse_preactivation(Graph& graph, const PassContext& context) {
  if (kernels_of("PreactivatedConv", context.target.device.kind).empty()) return;
  Preactivations(graph, context.target).run();
}

}  // namespace lenslet
