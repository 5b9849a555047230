#include "runtime/exec/movable_ports.h"

#include <algorithm>
#include <cstdint>

#include "runtime/graph/memory_plan.h"

namespace lenslet {

namespace {

std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }

// Whether all values of the block begin at its start; parts of other values do not.
bool begin_together(const Plan& plan, ValueId root) {
  for (std::size_t v = 0; v < plan.roots.size(); ++v)
    if (plan.roots[v] == root && plan.offsets[v] != plan.offsets[index(root)]) return false;
  return true;
}

std::ptrdiff_t ports_in(const Plan& plan, const std::vector<ValueId>& ports, ValueId root) {
  return std::ranges::count_if(ports, [&](ValueId port) { return plan.roots[index(port)] == root; });
}

}  // namespace

bool MovablePort::move(void* data) {
  void* const to = data == nullptr ? home_.data() : data;
  if (tensors_.empty() || reinterpret_cast<std::uintptr_t>(to) % app_alignment != 0) return false;
  if (to == at_) return true;
  for (Tensor* const tensor : tensors_) *tensor = Tensor::view(tensor->dtype(), tensor->shape(), to, tensor->format());
  at_ = to;
  return true;
}

bool input_may_move(const Plan& plan, std::size_t input) {
  const ValueId id = plan.graph.inputs[input];
  const ValueId root = plan.roots[index(id)];
  if (plan.constants[index(id)] != nullptr || ports_in(plan, plan.graph.inputs, root) != 1 ||
      ports_in(plan, plan.graph.outputs, root) != 0 || !begin_together(plan, root))
    return false;
  for (const PlanStep& step : plan.steps) {
    if (!step.runs) continue;
    for (const ValueId output : plan.graph.node(step.node).outputs)
      if (plan.roots[index(output)] == root) return false;
  }
  return true;
}

bool output_may_move(const Plan& plan, std::size_t output) {
  const ValueId id = plan.graph.outputs[output];
  const ValueId root = plan.roots[index(id)];
  return plan.constants[index(id)] == nullptr && ports_in(plan, plan.graph.inputs, root) == 0 &&
         ports_in(plan, plan.graph.outputs, root) == 1 && begin_together(plan, root) &&
         plan.graph.value(root).bytes() == plan.graph.value(id).bytes();
}

}  // namespace lenslet
