#include "runtime/graph/evaluate.h"

#include <utility>

namespace lenslet {

std::vector<Tensor> evaluate(const Op& op, std::span<const Tensor> inputs, std::span<const TensorType> types,
                             ThreadPool& pool) {
  std::vector<InputInfo> infos;
  std::vector<Format> layouts;
  for (const Tensor& input : inputs) {
    const bool present = !input.empty();
    infos.push_back({present, {input.dtype(), input.shape()}, present ? &input : nullptr});
    layouts.push_back(input.format());
  }
  std::vector<Tensor> outputs;
  for (const TensorType& type : types) outputs.emplace_back(type.dtype, type.shape);

  const PlanContext plan{
      .inputs = infos, .input_layouts = layouts, .outputs = types, .layout = formats::nchw, .threads = pool.threads()};
  std::shared_ptr<const void> prepared;
  std::size_t prepared_bytes = 0;
  if (!op.prepare_key(plan).empty()) prepared = op.prepare(plan, prepared_bytes);
  // A byte tensor is the aligned buffer at hand.
  const std::size_t workspace_bytes = op.workspace_bytes(plan);
  Tensor workspace(DType::u8, Shape{static_cast<std::int64_t>(workspace_bytes)});
  op.run_cpu({.inputs = inputs,
              .outputs = outputs,
              .workspace = {static_cast<std::byte*>(workspace.data()), workspace_bytes},
              .prepared = prepared.get(),
              .pool = pool});
  return outputs;
}

}  // namespace lenslet
