#pragma once
// The file's element types of values that `widen` made float32. They decide what may run in 16 bits and where a Cast
// rounds.

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lenslet/numerics.h"
#include "runtime/graph/graph.h"

namespace lenslet {

/// float16 or bfloat16.
constexpr bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// The value's type in the file.
inline DType type_in_file(const Value& value) { return value.dtype == DType::f32 ? value.file_type : value.dtype; }

/// Value::file_type of the outputs of `node`, whose inputs and outputs are typed. Types noted by `widen` are kept. If
/// the file mixes types that the operator does not allow: float32, which holds all of them.
void infer_file_types(Graph& graph, const Node& node);

/// State of with_rounding() during its walk through a graph.
struct RoundedValues {
  std::unordered_map<ValueId, ValueId> unrounded;  ///< a Cast to the type already in the file: its output to its input
  std::unordered_set<ValueId> to_round;            ///< to be rounded by the next node
};

/// Replacement nodes for a conversion (CastLike, DequantizeLinear) to a 16-bit file type that is float32 here, so that
/// it rounds; and for a Cast that does not change the file's type (unknown to widen), so that it does not. Empty:
/// unchanged. Sums and products are not rounded.
std::vector<Node> with_rounding(Graph& graph, const Node& node, RoundedValues& values);

/// fp16 or bf16 if the file computes nodes in it (the one with more FLOPs); else fp32. `graph` is inferred.
Numerics numerics_in_file(const Graph& graph);

/// A Cast node from `from` to `to`, of type `dtype`.
Node cast_node(std::string name, ValueId from, ValueId to, DType dtype);

}  // namespace lenslet
