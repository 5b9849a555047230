// wgmma_tf32 with cluster split-K, for few tiles and long gemm_k: wgmma_slices' kernel for float. Tiles and splits:
// wgmma_tf32_plan.cpp.

#include "ops/conv/cuda/wgmma_slices_launch.cuh"
#include "ops/conv/cuda/wgmma_tf32_slices.h"

namespace lenslet::cuda {
namespace {

SlicesKernel kernel_for(SlicesTile tile) {
  switch (tile) {
    case SlicesTile::t128x128:
      return wgmma_slices_kernel<float, SlicesTile::t128x128, wgmma_tf32_step, 1>;
    case SlicesTile::t128x64:
      return wgmma_slices_kernel<float, SlicesTile::t128x64, wgmma_tf32_step, 1>;
    case SlicesTile::t64x64:
      return wgmma_slices_kernel<float, SlicesTile::t64x64, wgmma_tf32_step, 1>;
    case SlicesTile::t64x32:
      return wgmma_slices_kernel<float, SlicesTile::t64x32, wgmma_tf32_step, 1>;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_tf32_slices(const ConvProblem& p, const WgmmaTf32Plan& plan) {
  const SlicesLaunch launch{.kernel = kernel_for(plan.slices_tile),
                            .tile = plan.slices_tile,
                            .slices = plan.slices,
                            .tiles_m = plan.tiles_m,
                            .tiles_n = plan.tiles_n,
                            .steps = plan.steps,
                            .width = wgmma_tf32_step,
                            .filters = in_whole_tiles(p, 1, plan.n()),
                            .element = MapElement::tf32};
  return std::make_unique<BoundWgmmaSlices>(p, launch);
}

}  // namespace lenslet::cuda
