#include "runtime/exec/constant_outputs.h"

#include <cstring>

namespace lenslet {

Tensor ConstantOutputs::add(const Plan& plan, ValueId id) {
  const Value& value = plan.graph.value(id);
  copies_.push_back({Tensor(value.dtype, value.shape, value.format), plan.constants[static_cast<std::size_t>(id)]});
  return copies_.back().output;
}

void ConstantOutputs::write() {
  for (Copy& copy : copies_)
    if (copy.output.bytes() > 0) std::memcpy(copy.output.data(), copy.constant->data(), copy.output.bytes());
}

}  // namespace lenslet
