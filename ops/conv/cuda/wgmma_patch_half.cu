// wgmma_patch's kernels for float16; one file a type, so that they compile in parallel.

#include "ops/conv/cuda/wgmma_patch.cuh"

namespace lenslet::cuda {

template <>
WgmmaPatchKernel wgmma_patch_kernel_for<Float16>(const WgmmaPatchPlan& plan) {
  return find_wgmma_patch_kernel<Float16>(plan);
}

}  // namespace lenslet::cuda
