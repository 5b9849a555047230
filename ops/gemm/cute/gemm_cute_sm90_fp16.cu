// gemm_cute_sm90.cuh's kernels for float16 operands.

#include "ops/gemm/cute/gemm_cute_sm90.cuh"

namespace lenslet::cuda {

void gemm_cute_wgmma_fp16(const Context& context, const CuteCall& call, const CutePlan& plan) {
  launch_type<cute::half_t>(context, call, plan);
}

}  // namespace lenslet::cuda
