// gemm_cute_sm90.cuh's kernels for float32 operands that are multiplied in TF32.

#include "ops/gemm/cute/gemm_cute_sm90.cuh"

namespace lenslet::cuda {

void gemm_cute_wgmma_tf32(const Context& context, const CuteCall& call, const CutePlan& plan) {
  launch_type<cute::tfloat32_t>(context, call, plan);
}

}  // namespace lenslet::cuda
