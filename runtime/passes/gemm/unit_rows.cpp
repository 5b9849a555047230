#include "runtime/passes/gemm/unit_rows.h"

namespace lenslet {
namespace {

/// Whether `id` is the larger of the norm of `x` and a positive number, which is `epsilon` then.
bool is_norm(const GraphEdit& edit, ValueId id, ValueId x, double& epsilon) {
  const Graph& graph = edit.graph();
  const auto shape_of = [&](ValueId value) { return graph.value(value).shape; };
  if (const Node* const expand = edit.made_by(id, "Expand")) id = expand->inputs[0];
  const Node* const bounded = edit.producer_node(id);
  if (bounded == nullptr) return false;
  ValueId norm = no_id, least = no_id;
  if (bounded->type() == "Clip" && input_of(*bounded, 2) == no_id) {
    norm = bounded->inputs[0], least = input_of(*bounded, 1);
  } else if (bounded->type() == "Max" && bounded->inputs.size() == 2) {
    const std::size_t side = graph.value(bounded->inputs[1]).is_constant() ? 1 : 0;
    norm = bounded->inputs[1 - side], least = bounded->inputs[side];
  }
  const Node* const reduced = norm == no_id ? nullptr : edit.made_by(norm, "ReduceL2");
  const std::optional<float> bound = least == no_id ? std::nullopt : scalar_constant(graph, least);
  if (reduced == nullptr || !bound || !(*bound > 0) || reduced->inputs[0] != x) return false;
  // The shapes say along which axis: only that of a single number is ambiguous.
  const int last = shape_of(x).rank() - 1;
  if (last < 0 || shape_of(x)[last] == 1 || !(shape_of(norm) == shape_of(x).with(last, 1)) ||
      !(shape_of(id) == shape_of(norm)))
    return false;
  epsilon = static_cast<double>(*bound);
  return true;
}

}  // namespace

std::optional<UnitRows> unit_rows(const GraphEdit& edit, ValueId y) {
  const Node* const node = edit.producer_node(y);
  if (node == nullptr || node->inputs.size() != 2) return std::nullopt;
  UnitRows rows;
  const auto divides = [&](std::size_t side) {
    rows.x = node->inputs[side];
    ValueId by = node->inputs[1 - side];
    if (node->type() == "Mul") {
      if (const Node* const expand = edit.made_by(by, "Expand")) by = expand->inputs[0];
      const Node* const reciprocal = edit.made_by(by, "Reciprocal");
      by = reciprocal == nullptr ? no_id : reciprocal->inputs[0];
    }
    return rows.x != no_id && by != no_id && edit.graph().value(rows.x).shape == edit.graph().value(y).shape &&
           is_norm(edit, by, rows.x, rows.epsilon);
  };
  const bool found = (node->type() == "Div" && divides(0)) || (node->type() == "Mul" && (divides(0) || divides(1)));
  return found ? std::optional(rows) : std::nullopt;
}

}  // namespace lenslet
