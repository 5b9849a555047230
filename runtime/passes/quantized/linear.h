#pragma once
// QuantizeLinear and DequantizeLinear as the steps of lower_quantized see them: known, one scale and zero point a
// tensor, codes of 8 bits.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/passes/edit.h"

namespace lenslet {

/// number = (code - zero_point) * scale, codes of `type` (uint8 or int8).
struct Linear {
  float scale = 1;
  std::int32_t zero_point = 0;
  DType type = DType::u8;

  std::int32_t least() const { return type == DType::i8 ? -128 : 0; }
  std::int32_t most() const { return least() + 255; }
  /// As QuantizeLinear; `number` is not NaN.
  std::int32_t code(float number) const;
  friend bool operator==(const Linear&, const Linear&) = default;
};

/// Of a QuantizeLinear or DequantizeLinear between float32 and such codes; nothing for other nodes.
std::optional<Linear> linear_of(const Graph& graph, const Node& node);
/// The same of its parameters: float32 with one element, and a zero point of the codes' type (null: 0).
std::optional<Linear> linear_of(DType codes, const Tensor& scale, const Tensor* zero_point);

/// A QuantizeLinear with its parameters.
struct Quantizer {
  NodeId node = no_id;
  Linear to;
};
std::optional<Quantizer> quantizer(const GraphEdit& edit, NodeId node);

/// The codes that a value was dequantised from.
struct CodesOf {
  ValueId id = no_id;
  Linear linear;
};
std::optional<CodesOf> codes_of(const GraphEdit& edit, ValueId value);
/// The same of a constant, whose codes become a constant.
std::optional<CodesOf> constant_codes(GraphEdit& edit, ValueId value);

/// The element that all elements equal; empty() if they differ.
Tensor only_element(const Tensor& tensor);

/// Why a node is computed in float32, by node.
using Refusals = std::map<NodeId, std::string>;

// The steps of lower_quantized, in their order.

/// Nodes that only move elements do so with codes: QuantizeLinear goes above them, DequantizeLinear below.
void move_codes(GraphEdit& edit);
/// int8 activations become uint8 where every node that reads or makes them is known.
void make_unsigned(GraphEdit& edit);
/// What is a function of one code becomes a QuantizedTable; what returns the code goes.
void make_tables(GraphEdit& edit);
/// A dequantised value times or over a positive number is dequantised with another scale.
void scale_codes(GraphEdit& edit);
/// Convolutions, products with known matrices, Add, Mul and global means become operators on codes.
void lower_nodes(GraphEdit& edit, Refusals& refusals);
/// Tables that only clamp become the range of the operator before them, Pads the padding of the convolution behind
/// them; int8 inputs of convolutions become uint8.
void finish_codes(GraphEdit& edit);
/// Node::note of each QuantizeLinear and DequantizeLinear left.
void note_floats(GraphEdit& edit, const Refusals& refusals);

}  // namespace lenslet
