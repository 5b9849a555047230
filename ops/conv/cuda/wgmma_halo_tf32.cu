// wgmma_halo's kernels for TF32; one file a type, so that they compile in parallel.

#include "ops/conv/cuda/wgmma_halo.cuh"

namespace lenslet::cuda {

template <>
WgmmaHaloKernel wgmma_halo_kernel_for<float>(const WgmmaHaloPlan& plan) {
  return find_wgmma_halo_kernel<float>(plan);
}

}  // namespace lenslet::cuda
