#include "runtime/passes/quantized/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace lenslet {
namespace {

bool is_code(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

const Tensor* constant_of(const Graph& graph, ValueId id) {
  return id == no_id || !graph.value(id).is_constant() ? nullptr : &graph.value(id).constant;
}

}  // namespace

Tensor only_element(const Tensor& tensor) {
  const auto* const bytes = static_cast<const char*>(tensor.data());
  const std::size_t size = dtype_bytes(tensor.dtype());
  if (tensor.elems() == 0 || (size != 0 && std::memcmp(bytes, bytes + size, tensor.bytes() - size) != 0)) return {};
  Tensor element(tensor.dtype(), Shape{});
  std::memcpy(element.data(), bytes, element.bytes());
  return element;
}

std::int32_t Linear::code(float number) const {
  const double step = std::nearbyint(static_cast<double>(number / scale)) + zero_point;
  return static_cast<std::int32_t>(std::clamp<double>(step, least(), most()));
}

std::optional<Linear> linear_of(DType codes, const Tensor& scale, const Tensor* zero_point) {
  if (!is_code(codes) || scale.dtype() != DType::f32 || scale.elems() != 1) return std::nullopt;
  Linear linear{.scale = scale.values<float>()[0], .type = codes};
  if (!std::isnormal(linear.scale) || linear.scale < 0) return std::nullopt;
  if (zero_point == nullptr) return linear;
  if (zero_point->dtype() != codes || zero_point->elems() != 1) return std::nullopt;
  linear.zero_point = codes == DType::i8 ? std::int32_t{zero_point->values<std::int8_t>()[0]}
                                         : std::int32_t{zero_point->values<std::uint8_t>()[0]};
  return linear;
}

std::optional<Linear> linear_of(const Graph& graph, const Node& node) {
  const bool quantizes = node.type() == "QuantizeLinear";
  if ((!quantizes && node.type() != "DequantizeLinear") || node.outputs[0] == no_id) return std::nullopt;
  const Value &x = graph.value(node.inputs[0]), &y = graph.value(node.outputs[0]);
  if ((quantizes ? x : y).dtype != DType::f32) return std::nullopt;
  const ValueId zero = input_of(node, 2);
  const Tensor* const scale = constant_of(graph, node.inputs[1]);
  if (scale == nullptr || (zero != no_id && constant_of(graph, zero) == nullptr) ||
      integer_attribute(*node.op, "block_size"))
    return std::nullopt;
  return linear_of((quantizes ? y : x).dtype, *scale, constant_of(graph, zero));
}

std::optional<Quantizer> quantizer(const GraphEdit& edit, NodeId node) {
  if (edit.erased(node) || edit.graph().node(node).type() != "QuantizeLinear") return std::nullopt;
  const auto to = linear_of(edit.graph(), edit.graph().node(node));
  return to ? std::optional(Quantizer{node, *to}) : std::nullopt;
}

std::optional<CodesOf> codes_of(const GraphEdit& edit, ValueId value) {
  const Node* const node = edit.producer_node(value);
  if (node == nullptr || node->type() != "DequantizeLinear") return std::nullopt;
  const auto linear = linear_of(edit.graph(), *node);
  return linear ? std::optional(CodesOf{node->inputs[0], *linear}) : std::nullopt;
}

std::optional<CodesOf> constant_codes(GraphEdit& edit, ValueId value) {
  const auto& from = edit.graph().value(value).dequantized;
  if (from == nullptr || integer_attribute(*from->op, "block_size")) return std::nullopt;
  const bool has_zero = from->inputs.size() > 2 && !from->inputs[2].empty();
  const auto linear = linear_of(from->inputs[0].dtype(), from->inputs[1], has_zero ? &from->inputs[2] : nullptr);
  if (!linear) return std::nullopt;
  return CodesOf{edit.add_constant(edit.graph().value(value).name + ":codes", Tensor(from->inputs[0])), *linear};
}

}  // namespace lenslet
