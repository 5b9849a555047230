#include "ops/gemm/head_kernel.h"

namespace lenslet {

HeadKernel::HeadKernel(const Binding& binding, std::span<const std::int64_t> floats)
    : p_(attention_problem(binding.problem)),
      k_(AttentionOp::holder(binding.problem.inputs(), AttentionOp::k)),
      v_(AttentionOp::holder(binding.problem.inputs(), AttentionOp::v)),
      threads_(binding.threads()) {
  for (const std::int64_t each : floats) starts_.push_back(starts_.back() + whole_lines(each));
}

void HeadKernel::run(const KernelRun& run) const {
  run.pool->parallel_for(p_.n * p_.heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* const scratch = reinterpret_cast<float*>(run.workspace.data()) + worker * starts_.back();
    for (std::int64_t head = begin; head < end; ++head) compute(run, head / p_.heads, head % p_.heads, scratch);
  });
}

}  // namespace lenslet
