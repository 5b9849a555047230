// fold_pad: a Pad with zeros around the images becomes the pads of the convolutions that read it. Other values, and
// other dimensions, stay.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/movement/pad.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

struct ZeroPad {
  std::int64_t top, left, bottom, right;
};

/// The pads of a node that puts zeros around [N,C,H,W] (or [N,C,W], as left and right), and nothing else.
std::optional<ZeroPad> zero_pad(const Graph& graph, const Node& node) {
  const auto* pad = dynamic_cast<const PadOp*>(node.op.get());
  if (pad == nullptr || pad->mode != PadMode::constant) return std::nullopt;
  double fill = pad->attribute_value;
  if (node.inputs.size() > 2 && node.inputs[2] != no_id) {
    const auto given = scalar_constant(graph, node.inputs[2]);
    if (!given) return std::nullopt;
    fill = double{*given};
  }
  if (fill != 0) return std::nullopt;
  const int rank = graph.value(node.inputs[0]).shape.rank();
  if (rank != 3 && rank != 4) return std::nullopt;
  const std::vector<std::int64_t> pads = pad->pads(graph.input_infos(node));
  const auto begin = [&](int axis) { return pads[static_cast<std::size_t>(axis)]; };
  const auto end = [&](int axis) { return pads[static_cast<std::size_t>(axis + rank)]; };
  for (int axis = 0; axis < rank; ++axis) {
    const bool spatial = axis >= 2;
    if (begin(axis) < 0 || end(axis) < 0) return std::nullopt;  // crops
    if (!spatial && (begin(axis) != 0 || end(axis) != 0)) return std::nullopt;
  }
  if (rank == 3) return ZeroPad{0, begin(2), 0, end(2)};
  return ZeroPad{begin(2), begin(3), end(2), end(3)};
}

/// The convolution with `pad` added to its own pads, which auto_pad may decide.
std::shared_ptr<const Op> with_pads(const ConvOp& conv, const ConvProblem& problem, const ZeroPad& pad) {
  auto folded = std::make_shared<ConvOp>(conv);
  folded->geometry.auto_pad = AutoPad::notset;
  folded->geometry.pads = {problem.pad_top + pad.top, problem.pad_left + pad.left, problem.pad_bottom + pad.bottom,
                           problem.pad_right + pad.right};
  return folded;
}

}  // namespace

void fold_pad(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto* conv = dynamic_cast<const ConvOp*>(node.op.get());
    if (conv == nullptr) continue;
    const NodeId made_by = edit.producer(node.inputs[0]);
    if (made_by == no_id) continue;
    const auto pad = zero_pad(graph, graph.node(made_by));
    if (!pad) continue;
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = graph.node(made_by).inputs[0];
    const ValueId padded = node.inputs[0];
    edit.replace(static_cast<NodeId>(n), with_pads(*conv, conv->problem(graph.input_infos(node)), *pad),
                 std::move(inputs));
    if (edit.uses(padded) == 0) edit.erase(made_by);
  }
  edit.finish();
}

}  // namespace lenslet
