// wgmma_halo's kernels for float16; one file a type, so that they compile in parallel.

#include "ops/conv/cuda/wgmma_halo.cuh"

namespace lenslet::cuda {

template <>
WgmmaHaloKernel wgmma_halo_kernel_for<Float16>(const WgmmaHaloPlan& plan) {
  return find_wgmma_halo_kernel<Float16>(plan);
}

}  // namespace lenslet::cuda
