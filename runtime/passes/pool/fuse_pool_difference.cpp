// fuse_pool_difference: the token mixer of PoolFormer (arXiv 2111.11418) and EfficientFormer, residual + scale[c] *
// (AveragePool(x) - x), becomes one step, which reads x and the residual once and rounds once.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/passes/channel_affine.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

bool subtracts_input(const Node& node) {
  return node.type() == "AveragePool" && integer_attribute(*node.op, "subtract_input").value_or(0) != 0;
}

/// Sub(AveragePool(x), x) becomes one AveragePool.
void merge_difference(GraphEdit& edit, NodeId id) {
  const Graph& graph = edit.graph();
  const Node& node = graph.node(id);
  if (node.type() != "Sub" || !edit.merges(node.inputs[0])) return;
  const Node& pool = *edit.producer_node(node.inputs[0]);
  const ValueId x = node.inputs[1];
  if (pool.type() != "AveragePool" || pool.inputs.size() != 1 || pool.inputs[0] != x || subtracts_input(pool) ||
      graph.value(x).dtype != DType::f32 || !(graph.value(node.inputs[0]).shape == graph.value(x).shape))
    return;
  const std::vector<std::int64_t> strides =
      integers_attribute(*pool.op, "strides").value_or(std::vector<std::int64_t>());
  if (std::ranges::any_of(strides, [](std::int64_t stride) { return stride != 1; })) return;
  auto op = with_attributes(*pool.op, {{"subtract_input", std::int64_t{1}}}, 1);
  edit.erase(edit.producer(node.inputs[0]));
  edit.replace(id, std::move(op), {x});
}

/// The pool that makes `id`, if it subtracts its input, has only the inputs below `inputs`, and `id` has no other
/// reader; else no_id.
NodeId open_pool(const GraphEdit& edit, ValueId id, std::size_t inputs) {
  if (id == no_id || !edit.merges(id)) return no_id;
  const Node& pool = *edit.producer_node(id);
  return subtracts_input(pool) && pool.inputs.size() <= inputs ? edit.producer(id) : no_id;
}

/// `id` becomes the pool with these inputs.
void take_over(GraphEdit& edit, NodeId id, NodeId pool, std::vector<ValueId> inputs) {
  auto op = edit.graph().node(pool).op;
  edit.erase(pool);
  edit.replace(id, std::move(op), std::move(inputs));
}

void merge_scale(GraphEdit& edit, NodeId id) {
  Graph& graph = edit.graph();
  if (graph.node(id).type() != "Mul") return;
  const auto product = affine_of(graph, graph.node(id));
  const NodeId pool = product ? open_pool(edit, product->x, 1) : no_id;
  if (pool == no_id) return;
  std::vector<float> scale;
  for (const double factor : product->affine.factor) scale.push_back(static_cast<float>(factor));
  const Shape channels{static_cast<std::int64_t>(scale.size())};
  const ValueId constant = edit.add_constant(graph.node(id).name + ":scale", Tensor::of<float>(channels, scale));
  take_over(edit, id, pool, {graph.node(pool).inputs[0], constant});
}

void merge_residual(GraphEdit& edit, NodeId id) {
  const Graph& graph = edit.graph();
  const Node& node = graph.node(id);
  if (node.type() != "Add") return;
  for (const std::size_t side : {0U, 1U}) {
    const ValueId residual = node.inputs[1 - side];
    const NodeId pool = open_pool(edit, node.inputs[side], 2);
    if (pool == no_id || graph.value(residual).dtype != DType::f32 || graph.value(residual).is_constant() ||
        !(graph.value(residual).shape == graph.value(node.inputs[side]).shape))
      continue;
    std::vector<ValueId> inputs = graph.node(pool).inputs;
    inputs.resize(2, no_id);
    inputs.push_back(residual);
    return take_over(edit, id, pool, std::move(inputs));
  }
}

}  // namespace

void fuse_pool_difference(Graph& graph, const PassContext&) {
  GraphEdit edit(graph);
  for (const auto& merge : {merge_difference, merge_scale, merge_residual})
    for (const NodeId id : edit.nodes())
      if (!edit.erased(id)) merge(edit, id);
  edit.finish();
}

}  // namespace lenslet
