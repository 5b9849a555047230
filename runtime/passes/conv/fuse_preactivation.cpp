// fuse_preactivation: a BatchNormalization and its activation that only 1x1 convolutions read go into their loading of
// x (PreactivatedConv), if kernels compute them so in less time than the chosen ones: where others read the value
// before it, it could not be folded (ResNetV2, DenseNet). Runs after the choice and changes no format.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

/// The factors and offsets of a BatchNormalization, without its activation.
std::optional<ChannelAffine> affine_of(const Graph& graph, const Node& norm) {
  Epilogue open = *norm.op->epilogue();
  open.activation = {};
  std::vector<InputInfo> inputs = graph.input_infos(norm);
  inputs[0].type.dtype = DType::f32;
  return norm.op->with_epilogue(open)->as_channel_affine(inputs, 0, graph.value(norm.outputs[0]).shape);
}

/// A convolution's fused step, if a kernel offers it in the current formats.
struct Joined {
  NodeId conv = no_id;
  std::shared_ptr<const Op> op;
  std::vector<ValueId> inputs;
  Choice choice;
};

class Preactivations {
 public:
  Preactivations(Graph& graph, const Target& target)
      : graph_(graph), target_(target), edit_(graph), readers_(graph.readers()) {}

  void run() {
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id) && not_forced(graph_.node(id), "BatchNormalization") && has_result(graph_.node(id)))
        join(id);
    edit_.finish();
  }

 private:
  void join(NodeId id) {
    const Node norm = graph_.node(id);  // copied: values are added
    const ValueId y = norm.outputs[0];
    const std::vector<NodeId>& readers = readers_[static_cast<std::size_t>(y)];
    if (norm.outputs.size() != 1 || edit_.is_output(y) || readers.empty() || graph_.value(y).shape.rank() != 4) return;
    for (const NodeId reader : readers)
      if (edit_.erased(reader) || !is_pointwise(graph_, graph_.node(reader), y)) return;
    const std::optional<ChannelAffine> affine = affine_of(graph_, norm);
    if (!affine) return;
    const auto constant = [&](const char* what, const std::vector<double>& values) {
      std::vector<float> floats(values.begin(), values.end());
      return edit_.add_constant(fmt::format("{}:{}", norm.name, what),
                                Tensor::of<float>(Shape{std::ssize(floats)}, floats));
    };
    const ValueId scale = constant("scale", affine->factor), shift = constant("shift", affine->offset);
    double apart_us = norm.choice->candidate.estimated_us, together_us = 0;
    std::vector<Joined> all;
    for (const NodeId reader : readers) {
      std::optional<Joined> one = joined(reader, norm, scale, shift);
      if (!one) return;
      apart_us += graph_.node(reader).choice->candidate.estimated_us;
      together_us += one->choice.candidate.estimated_us;
      all.push_back(std::move(*one));
    }
    if (together_us >= apart_us) return;
    for (Joined& one : all) {
      one.choice.reason =
          fmt::format("with {} before it: {:.1f} us, apart {:.1f} us", norm.name, together_us, apart_us);
      edit_.replace(one.conv, std::move(one.op), std::move(one.inputs));
      graph_.node(one.conv).choice = std::make_shared<const Choice>(std::move(one.choice));
    }
    edit_.erase(id);
  }

  std::optional<Joined> joined(NodeId id, const Node& norm, ValueId scale, ValueId shift) const {
    const Node& conv = graph_.node(id);
    Joined both;
    both.conv = id;
    both.inputs = {norm.inputs[0], scale, shift, conv.inputs[1], input_of(conv, 2), input_of(conv, 3)};
    AttributeList attributes = conv.op->attributes();
    const Activation& activation = norm.op->epilogue()->activation;
    AttributeList before;
    append_attributes(before, {.activation = activation});
    for (const auto& [name, value] : before) attributes.emplace_back("x_" + name, value);
    both.op = make_normalised_op("PreactivatedConv", attributes, both.inputs.size());
    Node node = conv;
    node.op = both.op;
    node.inputs = both.inputs;
    const Problem problem(both.op, graph_.input_infos(node), graph_.output_types(node));
    for (const Kernel* const kernel : kernels_of("PreactivatedConv", target_.device.kind)) {
      const Offer offer = kernel->offer(problem, target_);
      for (const Candidate& candidate : offer.candidates) {
        bool meets = candidate.outputs[0] == graph_.value(node.outputs[0]).format;
        for (std::size_t i = 0; i < node.inputs.size(); ++i)
          meets = meets && (node.inputs[i] == no_id || graph_.value(node.inputs[i]).is_constant() ||
                            candidate.inputs[i] == graph_.value(node.inputs[i]).format);
        if (!meets) continue;
        both.choice.kernel = kernel;
        both.choice.candidate = candidate;
        both.choice.rows = {{.kernel = kernel, .refusal = {}, .candidate = candidate},
                            {.kernel = conv.choice->kernel, .refusal = {}, .candidate = conv.choice->candidate}};
        return both;
      }
    }
    return std::nullopt;
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
