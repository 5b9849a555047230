// wgmma_halo's kernels for bfloat16; one file a type, so that they compile in parallel.

#include "ops/conv/cuda/wgmma_halo.cuh"

namespace lenslet::cuda {

template <>
WgmmaHaloKernel wgmma_halo_kernel_for<BFloat16>(const WgmmaHaloPlan& plan) {
  return find_wgmma_halo_kernel<BFloat16>(plan);
}

}  // namespace lenslet::cuda
