// batch_first: torch.nn.MultiheadAttention works on tokens [L,N,E]. With batch_first its callers' [N,L,E] are
// transposed before the projection and behind the last product, and heads lie as [L,N*H,D], which strides of [N,L,E] do
// not say. A product by constants does not care about the order of rows: its Transpose moves towards the heads, where
// fuse_attention takes it for strides.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

const Integers swap_batch{1, 0, 2};

class BatchFirst {
 public:
  explicit BatchFirst(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    for (const NodeId id : edit_.nodes()) {
      if (edit_.erased(id) || !has_result(graph_.node(id))) continue;
      if (graph_.node(id).type() == "Reshape") split_heads(id);
      if (graph_.node(id).type() == "MatMul" || graph_.node(id).type() == "Add") sink(id);
      if (transposes(graph_.node(id), swap_batch)) raise(id);
    }
    edit_.finish();
  }

 private:
  const Shape& shape_of(ValueId id) const { return graph_.value(id).shape; }
  DType file_type(ValueId id) const { return graph_.value(id).file_type; }
  static bool transposes(const Node& node, const Integers& perm) {
    return node.type() == "Transpose" && integers_attribute(*node.op, "perm") == perm;
  }
  /// x of a Transpose by this permutation, or no_id.
  ValueId source(ValueId id, const Integers& perm) const {
    const Node* const node = edit_.producer_node(id);
    return node != nullptr && transposes(*node, perm) ? node->inputs[0] : no_id;
  }
  ValueId reshaped(ValueId x, const Shape& shape, const std::string& name) {
    return edit_.add_node(name + ":rows", make_reshape_op(), {x, edit_.add_sizes(name + ":shape", shape.dims())},
                          file_type(x));
  }

  /// [L,N,E] as [L,N*H,D], transposed to [N*H,L,D], as [N,H,L,D]: the Transpose of [L,N,H,D] to that.
  void split_heads(NodeId id) {
    const Node& node = graph_.node(id);
    const Shape y = shape_of(node.outputs[0]);
    const ValueId merged = edit_.merges(node.inputs[0]) ? source(node.inputs[0], swap_batch) : no_id;
    const Node* const first = edit_.merges(merged) ? edit_.made_by(merged, "Reshape") : nullptr;
    if (first == nullptr || y.rank() != 4 || y.elems() == 0) return;
    const ValueId x = first->inputs[0];
    if (!(shape_of(x) == Shape{y[2], y[0], y[1] * y[3]}) || !(shape_of(merged) == Shape{y[2], y[0] * y[1], y[3]}))
      return;
    const ValueId old = node.inputs[0];
    const ValueId heads = reshaped(x, Shape{y[2], y[0], y[1], y[3]}, node.name);
    edit_.replace(id, make_transpose_op({1, 2, 0, 3}), {heads});
    edit_.erase_unread(old);
  }

  /// Whether a Reshape makes heads of y, or Q, K and V, and nobody else reads it.
  bool becomes_heads(ValueId y, int products) const {
    if (!edit_.merges(y)) return false;
    for (const Node& node : graph_.nodes) {
      if (node.op == nullptr || node.inputs.empty()) continue;
      const bool reads = std::ranges::find(node.inputs, y) != node.inputs.end();
      if (!reads) continue;
      if (node.type() == "Add" && products > 0) return becomes_heads(node.outputs[0], products - 1);
      if (node.type() != "Reshape" || !has_result(node)) return false;
      const Shape& shape = shape_of(node.outputs[0]);
      return shape.rank() == 4 || (shape.rank() == 3 && shape[1] > shape_of(y)[1]);
    }
    return false;
  }

  /// A product of transposed rows by a constant, or the Add of its bias, becomes the Transpose of that of the rows.
  void sink(NodeId id) {
    const Node& node = graph_.node(id);
    const bool is_product = node.type() == "MatMul";
    const std::size_t side = !is_product && source(node.inputs[0], swap_batch) == no_id ? 1 : 0;
    const ValueId old = node.inputs[side], other = node.inputs[1 - side], x = source(old, swap_batch);
    if (x == no_id || !edit_.merges(old) || !graph_.value(other).is_constant() || shape_of(x).rank() != 3) return;
    const Shape &y = shape_of(node.outputs[0]), &constant = shape_of(other);
    if (is_product ? constant.rank() != 2 : constant.rank() != 1 || !(y == shape_of(old))) return;
    if (!becomes_heads(node.outputs[0], is_product ? 1 : 0)) return;
    std::vector<ValueId> inputs = node.inputs;
    inputs[side] = x;
    const ValueId moved = edit_.add_node(node.name, node.op, std::move(inputs), file_type(node.outputs[0]));
    edit_.replace(id, make_transpose_op(swap_batch), {moved});
    graph_.node(id).name += ":transpose";
    edit_.erase_unread(old);
  }

  /// [N,H,L,D] as [L,N,H,D] and [L*N,E], times a constant, as [L,N,K], transposed to [N,L,K]: the product of [N,L,E].
  void raise(NodeId id) {
    const Shape y = shape_of(graph_.node(id).outputs[0]);
    const ValueId old = graph_.node(id).inputs[0];
    const Node* const split = edit_.merges(old) ? edit_.made_by(old, "Reshape") : nullptr;
    const Node* const gemm =
        split != nullptr && edit_.merges(split->inputs[0]) ? edit_.made_by(split->inputs[0], "Gemm") : nullptr;
    const Node* const joined =
        gemm != nullptr && edit_.merges(gemm->inputs[0]) ? edit_.made_by(gemm->inputs[0], "Reshape") : nullptr;
    const ValueId heads =
        joined != nullptr && edit_.merges(joined->inputs[0]) ? source(joined->inputs[0], {2, 0, 1, 3}) : no_id;
    if (heads == no_id || y.rank() != 3 || y.elems() == 0) return;
    const auto number = [&](const char* name) { return integer_attribute(*gemm->op, name).value_or(0); };
    const ValueId weights = gemm->inputs[1], bias = input_of(*gemm, 2);
    const Shape of_heads = shape_of(heads), matrix = shape_of(weights);
    const bool rows_first = number("transB") != 0;
    const std::int64_t e = of_heads[1] * of_heads[3];
    if (number("transA") != 0 || attribute<double>(*gemm->op, "alpha").value_or(1) != 1 ||
        attribute<double>(*gemm->op, "beta").value_or(1) != 1 || of_heads[0] != y[0] || of_heads[2] != y[1] ||
        !(shape_of(gemm->inputs[0]) == Shape{y[0] * y[1], e}) || !graph_.value(weights).is_constant() ||
        matrix != (rows_first ? Shape{y[2], e} : Shape{e, y[2]}) ||
        (bias != no_id && !(graph_.value(bias).is_constant() && shape_of(bias) == Shape{y[2]})))
      return;
    const std::string name = gemm->name;
    const auto last = edit_.add_node(name + ":heads", make_transpose_op({0, 2, 1, 3}), {heads}, file_type(heads));
    const ValueId tokens = reshaped(last, Shape{y[0], y[1], e}, name);
    const ValueId factors =
        rows_first ? edit_.add_constant(graph_.value(weights).name, transposed_matrix(graph_.value(weights).constant))
                   : weights;
    if (bias == no_id) {
      edit_.replace(id, make_normalised_op("MatMul", {}, 2), {tokens, factors});
    } else {
      const ValueId product = edit_.add_node(name, make_normalised_op("MatMul", {}, 2), {tokens, factors},
                                             file_type(graph_.node(id).outputs[0]));
      edit_.replace(id, make_normalised_op("Add", {}, 2), {product, bias});
    }
    edit_.erase_unread(old);
  }

  Graph& graph_;
  GraphEdit edit_;
};

}  // namespace

void batch_first(Graph& graph, const PassContext&) { BatchFirst(graph).run(); }

}  // namespace lenslet
