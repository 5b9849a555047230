// gemm_cute_sm90.cuh's kernels for bfloat16 operands.

#include "ops/gemm/cute/gemm_cute_sm90.cuh"

namespace lenslet::cuda {

void gemm_cute_wgmma_bf16(const Context& context, const CuteCall& call, const CutePlan& plan) {
  launch_type<cute::bfloat16_t>(context, call, plan);
}

}  // namespace lenslet::cuda
