// fold_batch_norm: y = scale * (x - mean) / sqrt(var + epsilon) + B after a Conv or Gemm becomes factors on the filters
// and a bias. Only where nobody else sees x; never forward through a convolution, whose padding it would reach.
#include <optional>

#include "ops/normalization/batch_norm.h"
#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

std::optional<ChannelAffine> affine_of(const Graph& graph, const Node& node, std::int64_t channels) {
  const auto* op = dynamic_cast<const BatchNormOp*>(node.op.get());
  if (op == nullptr) return std::nullopt;
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (node.outputs[i] != no_id) return std::nullopt;
  for (std::size_t i = 1; i < 5; ++i) {
    const Value& parameter = graph.value(node.inputs[i]);
    if (!parameter.is_constant() || parameter.dtype != DType::f32 || parameter.constant.elems() != channels)
      return std::nullopt;
  }
  const auto parameter = [&](std::size_t i) { return graph.value(node.inputs[i]).constant.values<float>(); };
  ChannelAffine affine;
  affine.factor.resize(static_cast<std::size_t>(channels));
  affine.offset.resize(static_cast<std::size_t>(channels));
  batch_norm_as_scale(op->epsilon, parameter(1), parameter(2), parameter(3), parameter(4), affine.factor,
                      affine.offset);
  return affine;
}

}  // namespace

void fold_batch_norm(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto id = static_cast<NodeId>(n);
    if (edit.erased(id) || graph.nodes[n].inputs.empty()) continue;
    const ValueId x = graph.nodes[n].inputs[0];
    if (const auto channels = affine_channels(edit, x))
      if (const auto affine = affine_of(graph, graph.nodes[n], *channels)) fold_affine(edit, id, x, *affine);
  }
  edit.finish();
}

}  // namespace lenslet
