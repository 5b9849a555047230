// fold_scale: Mul, Div, Add and Sub with a constant that varies at most by channel, after a Conv or Gemm.
#include <string_view>
#include <vector>

#include "runtime/passes/channel_affine.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// The constant as one value a channel of a [N,C,...] result; nothing when it varies otherwise or would widen the
/// shape.
std::vector<double> per_channel(const Value& constant, const Shape& result, std::int64_t channels) {
  if (!constant.is_constant() || constant.dtype != DType::f32) return {};
  const int missing = result.rank() - constant.shape.rank();
  if (missing < 0) return {};
  for (int axis = 0; axis < constant.shape.rank(); ++axis)
    if (constant.shape[axis] != 1 && axis + missing != 1) return {};
  const auto values = constant.constant.values<float>();
  if (values.size() == 1) return std::vector<double>(static_cast<std::size_t>(channels), double{values[0]});
  if (values.size() != static_cast<std::size_t>(channels)) return {};
  return {values.begin(), values.end()};
}

/// What the node does to input `side`, its other input being constant.
std::vector<double> constant_operand(const Graph& graph, const Node& node, std::size_t side, std::int64_t channels) {
  return per_channel(graph.value(node.inputs[1 - side]), graph.value(node.outputs[0]).shape, channels);
}

ChannelAffine affine_of(std::string_view type, std::size_t side, const std::vector<double>& c) {
  ChannelAffine affine{std::vector<double>(c.size(), 1), std::vector<double>(c.size(), 0)};
  for (std::size_t k = 0; k < c.size(); ++k) {
    if (type == "Mul") affine.factor[k] = c[k];
    if (type == "Div") affine.factor[k] = 1 / c[k];
    if (type == "Add") affine.offset[k] = c[k];
    if (type == "Sub") {
      affine.factor[k] = side == 0 ? 1 : -1;
      affine.offset[k] = side == 0 ? -c[k] : c[k];
    }
  }
  return affine;
}

bool fold(GraphEdit& edit, NodeId id) {
  const Node& node = edit.graph().node(id);
  const std::string_view type = node.type();
  if (type != "Mul" && type != "Div" && type != "Add" && type != "Sub") return false;
  if (node.inputs.size() != 2 || node.inputs[0] == no_id || node.inputs[1] == no_id) return false;
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    if (type == "Div" && side == 1) continue;  // constant / x is no affine
    const ValueId x = node.inputs[side];
    const auto channels = affine_channels(edit, x);
    if (!channels || !(edit.graph().value(x).shape == edit.graph().value(node.outputs[0]).shape)) continue;
    const std::vector<double> c = constant_operand(edit.graph(), node, side, *channels);
    if (c.empty()) continue;
    return fold_affine(edit, id, x, affine_of(type, side, c));
  }
  return false;
}

}  // namespace

void fold_scale(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (!edit.erased(static_cast<NodeId>(n))) fold(edit, static_cast<NodeId>(n));
  edit.finish();
}

}  // namespace lenslet
