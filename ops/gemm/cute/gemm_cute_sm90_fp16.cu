// gemm_cute_sm90.cuh's kernels for float16 operands.

#include "ops/gemm/cute/gemm_cute_sm90.cuh"
#ifdef LENSLET_CUDA_QUICK  // one compilation of all three: CUTLASS's headers are most of the time
#include "ops/gemm/cute/gemm_cute_sm90_bf16.cu"
#include "ops/gemm/cute/gemm_cute_sm90_tf32.cu"
#endif

namespace lenslet::cuda {

void gemm_cute_wgmma_fp16(const Context& context, const CuteCall& call, const CutePlan& plan) {
  launch_type<cute::half_t>(context, call, plan);
}

}  // namespace lenslet::cuda
