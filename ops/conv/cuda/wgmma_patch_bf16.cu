// wgmma_patch's kernels for bfloat16, in a file of their own so that they compile beside the others.

#include "ops/conv/cuda/wgmma_patch.cuh"

namespace lenslet::cuda {

template <>
WgmmaPatchKernel wgmma_patch_kernel_for<BFloat16>(const WgmmaPatchPlan& plan) {
  return find_wgmma_patch_kernel<BFloat16>(plan);
}

}  // namespace lenslet::cuda
