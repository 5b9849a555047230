// matmul_to_conv: a MatMul of [N,H,W,C] or [N,T,C] by a constant [C,K] becomes a 1x1 convolution between Transposes,
// which cancel_transposes then moves and assign_formats treats as changes of format. A convolution has more kernels, 16
// bit types, and an epilogue that takes bias, scale, activation and residual.
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/transposed_op.h"

namespace lenslet {
namespace {

using Integers = std::vector<std::int64_t>;

/// The filters [K,C,1,1] of a matrix [C,K].
Tensor filters_of(const Tensor& matrix) {
  return transposed_matrix(matrix).reshaped(Shape{matrix.shape()[1], matrix.shape()[0], 1, 1});
}

class Products {
 public:
  explicit Products(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id)) join_bias(id);
    for (const NodeId id : edit_.nodes())
      if (!edit_.erased(id) && is_product(graph_.node(id))) replace(id, id, no_id);
    edit_.finish();
  }

 private:
  bool is_product(const Node& node) const {
    if (node.type() != "MatMul") return false;
    const Value &x = graph_.value(node.inputs[0]), &matrix = graph_.value(node.inputs[1]);
    if (!matrix.is_constant() || matrix.shape.rank() != 2 || matrix.shape.elems() == 0 || x.is_constant()) return false;
    return x.dtype == DType::f32 && (x.shape.rank() == 3 || x.shape.rank() == 4) && x.shape.elems() > 0 &&
           !made_of_codes(node.inputs[0]);
  }
  /// Of a quantised network: lower_quantized reads its products.
  bool made_of_codes(ValueId id) const {
    const Node* const node = edit_.producer_node(id);
    return node != nullptr && node->type() == "DequantizeLinear";
  }

  /// An Add of a constant [K] to a product that nobody else reads: an epilogue could not take it through a Reshape.
  void join_bias(NodeId id) {
    const Node& node = graph_.node(id);
    if (node.type() != "Add") return;
    for (const std::size_t side : {0U, 1U}) {
      const ValueId product = node.inputs[side], bias = node.inputs[1 - side];
      if (!edit_.merges(product) || !is_product(*edit_.producer_node(product))) continue;
      const Value& added = graph_.value(bias);
      const Shape &shape = added.shape, &y = graph_.value(product).shape;
      const std::int64_t k = y[y.rank() - 1];
      if (!added.is_constant() || shape.rank() == 0 || shape.rank() > y.rank() || shape.elems() != k ||
          shape[shape.rank() - 1] != k)
        continue;
      const Tensor flat = Tensor::of<float>(Shape{k}, added.constant.values<float>());
      return replace(edit_.producer(product), id, edit_.add_constant(added.name, flat));
    }
  }

  /// `last` makes the result: the MatMul itself, or the Add of its bias.
  void replace(NodeId matmul, NodeId last, ValueId bias) {
    const std::string name = graph_.node(matmul).name;
    const ValueId y = graph_.node(matmul).outputs[0], matrix = graph_.node(matmul).inputs[1];
    const DType type = graph_.value(y).file_type;
    ValueId x = graph_.node(matmul).inputs[0];
    const DType x_type = graph_.value(x).file_type;
    const Shape shape = graph_.value(x).shape, result = graph_.value(y).shape;
    const bool tokens = shape.rank() == 3;
    if (tokens) {
      const ValueId image = edit_.add_sizes(name + ":shape", Integers{shape[0], 1, shape[1], shape[2]});
      x = edit_.add_node(name + ":image", make_reshape_op(), {x, image}, x_type);
    }
    auto first = make_transpose_op(to_channels_first);
    std::vector<ValueId> inputs{
        edit_.add_node(name + ":channels_first", std::move(first), {x}, x_type),
        edit_.add_constant(graph_.value(matrix).name, filters_of(graph_.value(matrix).constant))};
    if (bias != no_id) inputs.push_back(bias);
    auto conv = make_normalised_op("Conv", {{"kernel_shape", Integers{1, 1}}}, inputs.size());
    const ValueId product = edit_.add_node(name, std::move(conv), std::move(inputs), type);
    auto back = make_transpose_op(to_channels_last);
    if (tokens) {
      const ValueId rows = edit_.add_node(name + ":channels_last", std::move(back), {product}, type);
      edit_.replace(last, make_reshape_op(), {rows, edit_.add_sizes(name + ":shape", result.dims())});
    } else {
      edit_.replace(last, std::move(back), {product});
    }
    graph_.node(last).name = name + (tokens ? ":tokens" : ":channels_last");
    if (last != matmul) edit_.erase_unread(y);
  }

  Graph& graph_;
  GraphEdit edit_;
};

}  // namespace

void matmul_to_conv(Graph& graph, const PassContext&) { Products(graph).run(); }

}  // namespace lenslet
