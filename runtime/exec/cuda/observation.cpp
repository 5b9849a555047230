#include "runtime/exec/cuda/observation.h"

#include <utility>

namespace lenslet::cuda {

Observation::Observation(const Plan& plan, Observer observer_given)
    : observer(std::move(observer_given)),
      values(plan.graph.values.size()),
      steps(plan.steps.size()),
      boundaries(plan.steps.size() + 1) {
  const Graph& graph = plan.graph;
  const auto host = [&](ValueId id) -> Tensor& { return values[static_cast<std::size_t>(id)]; };
  const auto allocate = [&](ValueId id) {
    const Value& value = graph.value(id);
    host(id) = Tensor(value.dtype, value.shape, value.format);
  };
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (const Tensor* constant = plan.constants[v])
      values[v] = Tensor::share(value.dtype, value.shape, nullptr, constant->data(), value.format);
  }
  for (const ValueId id : graph.inputs) allocate(id);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const Node& node = graph.node(plan.steps[s].node);
    for (const ValueId id : node.outputs) {
      if (plan.constants[static_cast<std::size_t>(id)] != nullptr) continue;
      if (plan.steps[s].runs) {
        allocate(id);
        continue;
      }
      const Value& value = graph.value(id);
      Tensor& renamed = host(node.inputs[static_cast<std::size_t>(node.op->alias_input())]);
      host(id) = Tensor::view(value.dtype, value.shape, renamed.data(), value.format);
    }
    for (const ValueId id : node.inputs) steps[s].inputs.push_back(id == no_id ? Tensor() : host(id));
    for (const ValueId id : node.outputs) steps[s].outputs.push_back(host(id));
  }
}

}  // namespace lenslet::cuda
