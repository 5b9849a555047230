// wgmma_patch's kernels for TF32; one file a type, so that they compile in parallel.

#include "ops/conv/cuda/wgmma_patch.cuh"

namespace lenslet::cuda {

template <>
WgmmaPatchKernel wgmma_patch_kernel_for<float>(const WgmmaPatchPlan& plan) {
  return find_wgmma_patch_kernel<float>(plan);
}

}  // namespace lenslet::cuda
