// wgmma_tf32 with cluster split-K, for few tiles and long gemm_k: wgmma_split_k' kernel for float. Tiles and splits:
// wgmma_tf32_plan.cpp.

#include "ops/conv/cuda/wgmma_split_k_launch.cuh"
#include "ops/conv/cuda/wgmma_tf32_split_k.h"

namespace lenslet::cuda {
namespace {

SplitKKernel kernel_for(SplitKTile tile) {
  switch (tile) {
    case SplitKTile::t128x128:
      return wgmma_split_k_kernel<float, SplitKTile::t128x128, wgmma_tf32_step, 1>;
    case SplitKTile::t128x64:
      return wgmma_split_k_kernel<float, SplitKTile::t128x64, wgmma_tf32_step, 1>;
    case SplitKTile::t64x64:
      return wgmma_split_k_kernel<float, SplitKTile::t64x64, wgmma_tf32_step, 1>;
    case SplitKTile::t64x32:
      return wgmma_split_k_kernel<float, SplitKTile::t64x32, wgmma_tf32_step, 1>;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_tf32_split_k(const ConvProblem& p, const WgmmaTf32Plan& plan) {
  const SplitKLaunch launch{.kernel = kernel_for(plan.split_k_tile),
                            .tile = plan.split_k_tile,
                            .split_k = plan.split_k,
                            .tiles_m = plan.tiles_m,
                            .tiles_n = plan.tiles_n,
                            .steps = plan.steps,
                            .width = wgmma_tf32_step,
                            .filters = in_whole_tiles(p, 1, plan.n()),
                            .element = MapElement::tf32};
  return std::make_unique<BoundWgmmaSplitK>(p, launch);
}

}  // namespace lenslet::cuda
