#include "ops/core/whole_op.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace lenslet {

std::vector<TensorType> WholeOp::infer(std::span<const InputInfo> inputs) const {
  check(inputs);
  std::vector<Tensor> values;
  InputMask unknown = no_inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool known = inputs[i].present && inputs[i].constant != nullptr;
    if (inputs[i].present && !known) unknown |= input_bit(i);
    values.push_back(known ? *inputs[i].constant : Tensor());
  }
  if (unknown != no_inputs) throw NeedsValue(unknown, "what decides the shape");
  std::vector<TensorType> types;
  for (const Tensor& output : compute(values)) types.push_back({output.dtype(), output.shape()});
  return types;
}

std::unique_ptr<const BoundKernel> bind_whole(const Binding& binding) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < binding.problem.inputs().size(); ++i)
    values.push_back(binding.constant(i) == nullptr ? Tensor() : *binding.constant(i));
  const auto& op = binding.op<WholeOp>();
  std::vector<Tensor> made = op.compute(values);
  const std::vector<Shape> bounds = op.bounds(binding.problem.inputs());
  for (std::size_t i = 0; i < made.size(); ++i)
    for (int axis = 0; axis < made[i].shape().rank(); ++axis)
      if (made[i].shape().rank() != bounds.at(i).rank() || made[i].shape()[axis] > bounds[i][axis])
        throw Error(ErrorKind::internal, fmt::format("{}: output {} is {}, beyond {}", op.type(), i,
                                                     made[i].shape().str(), bounds[i].str()));
  return bound([made = std::move(made)](const KernelRun& run) {
    for (std::size_t i = 0; i < run.outputs.size(); ++i)
      if (made[i].bytes() > 0) std::memcpy(run.outputs[i].data(), made[i].data(), made[i].bytes());
  });
}

}  // namespace lenslet
