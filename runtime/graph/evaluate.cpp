#include "runtime/graph/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/core/whole_op.h"

namespace lenslet {
namespace {

bool plain(const Candidate& candidate) {
  const auto nchw = [](const Format& format) { return format == formats::nchw; };
  return std::ranges::all_of(candidate.inputs, nchw) && std::ranges::all_of(candidate.outputs, nchw);
}

}  // namespace

std::vector<InputInfo> infos_of(std::span<const Tensor> inputs) {
  std::vector<InputInfo> infos;
  for (const Tensor& input : inputs)
    infos.push_back({!input.empty(), {input.dtype(), input.shape()}, input.empty() ? nullptr : &input});
  return infos;
}

std::vector<Tensor> infer_and_evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                                       ThreadPool& pool) {
  const std::vector<InputInfo> infos = infos_of(inputs);
  if (const auto* whole = dynamic_cast<const WholeOp*>(op.get())) {
    require_input_type(*op, infos);
    whole->check(infos);
    return whole->compute(inputs);
  }
  return evaluate(op, inputs, infer_types(*op, infos), pool);
}

std::vector<Tensor> evaluate(const std::shared_ptr<const Op>& op, std::span<const Tensor> inputs,
                             std::span<const TensorType> types, ThreadPool& pool) {
  if (const auto* whole = dynamic_cast<const WholeOp*>(op.get())) return whole->compute(inputs);
  const Problem problem(op, infos_of(inputs), {types.begin(), types.end()});
  const DeviceProfile device = cpu_profile(pool.threads());

  std::string refusal = "there is no kernel for it";
  for (const Kernel* kernel : kernels_of(op->type(), DeviceKind::cpu)) {
    const Offer offer = kernel->offer(problem, {device});
    const auto candidate = std::find_if(offer.candidates.begin(), offer.candidates.end(), plain);
    if (candidate == offer.candidates.end()) {
      if (!offer.refusal.empty()) refusal = offer.refusal;
      continue;
    }
    const Tensor blob = prepared_blob(*kernel, problem, *candidate);
    Tensor workspace = tensor_of_bytes(candidate->workspace_bytes);
    std::vector<Tensor> outputs;
    for (const TensorType& type : types) outputs.emplace_back(type.dtype, type.shape);
    kernel->bind({problem, *candidate, device})
        ->run({.inputs = inputs,
               .outputs = outputs,
               .workspace = bytes_of(workspace),
               .blob = static_cast<const std::byte*>(blob.data()),
               .pool = &pool});
    return outputs;
  }
  throw Error(ErrorKind::unsupported, refusal);
}

}  // namespace lenslet
