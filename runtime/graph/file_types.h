#pragma once
// The element types that a file gives its values, where they are float32 here because `widen` made them so: they say
// what may run in 16 bits, and where a Cast rounds.

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lenslet/numerics.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// float16 or bfloat16.
constexpr bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// What the value is in the file.
inline DType type_in_file(const Value& value) { return value.dtype == DType::f32 ? value.file_type : value.dtype; }

/// Value::file_type of the outputs of `node`, whose inputs and outputs are typed. An output that `widen` has noted
/// stays so. Where a file mixes types that its operator does not let mix: float32, which holds all of them.
void infer_file_types(Graph& graph, const Node& node);

/// What with_rounding() knows of values on the way through a graph.
struct RoundedValues {
  std::unordered_map<ValueId, ValueId> unrounded;  ///< of what a Cast to the type that was there made, what it read
  std::unordered_set<ValueId> to_round;            ///< rounded by a node that comes next
};

/// A conversion into 16 bits in the file where float32 stands for them, CastLike and DequantizeLinear, as nodes that
/// round to them; and a Cast to the type that is there in the file (widen cannot tell) as one that does not. Empty: as
/// it is. Sums and products are not rounded.
std::vector<Node> with_rounding(Graph& graph, const Node& node, RoundedValues& values);

/// fp16 or bf16 where nodes of the file are computed in that, in the one of more FLOPs; else fp32. `graph` is inferred.
Numerics numerics_in_file(const Graph& graph);

/// A node that converts `from` to `to`, of type `dtype`.
Node cast_node(std::string name, ValueId from, ValueId to, DType dtype);

}  // namespace lenslet
