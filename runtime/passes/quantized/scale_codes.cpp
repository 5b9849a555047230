// Step of lower_quantized: codes times a number are codes of another scale.

#include <cmath>
#include <vector>

#include "runtime/passes/quantized/linear.h"

namespace lenslet {
namespace {

/// A dequantised value times or over one positive number has another scale, and codes for those that read it.
void scale(GraphEdit& edit, NodeId id) {
  const Node node = edit.graph().node(id);
  const bool divides = node.type() == "Div";
  if (!divides && node.type() != "Mul") return;
  for (std::size_t side = 0; side < (divides ? 1 : 2); ++side) {
    const auto codes = codes_of(edit, node.inputs[side]);
    const Value &by = edit.graph().value(node.inputs[1 - side]), &y = edit.graph().value(node.outputs[0]);
    if (!codes || !by.is_constant() || by.dtype != DType::f32 || edit.graph().value(codes->id).shape != y.shape)
      continue;
    const Tensor number = only_element(by.constant);
    if (number.empty() || edit.graph().value(node.inputs[side]).dtype != y.dtype) continue;
    const float factor = number.values<float>()[0], scale = codes->linear.scale;
    const float scaled = divides ? scale / factor : scale * factor;
    if (!std::isnormal(scaled) || scaled < 0) continue;
    const Node dequantize = *edit.producer_node(node.inputs[side]);
    std::vector<ValueId> inputs = dequantize.inputs;
    inputs[1] = edit.add_constant(node.name + ":scale", Tensor::of<float>(Shape{}, {scaled}));
    edit.replace(id, dequantize.op, std::move(inputs));
    edit.erase_unread(node.inputs[side]);
    return;
  }
}

}  // namespace

void scale_codes(GraphEdit& edit) {
  for (const NodeId n : edit.nodes())
    if (!edit.erased(n)) scale(edit, n);
}

}  // namespace lenslet
