// wgmma_gemm with cluster split-K, for few tiles and long gemm_k. Kernel: wgmma_slices.cuh; tiles and splits:
// wgmma_gemm_plan.cpp.

#include "ops/conv/cuda/wgmma_slices.h"

#include "ops/conv/cuda/wgmma_slices_launch.cuh"

namespace lenslet::cuda {
namespace {

using HalfTypes = Types<Float16, BFloat16>;

template <typename T, SlicesTile tile>
SlicesKernel kernel_for(const WgmmaGemmPlan& plan) {
  if constexpr (has_width(tile, 32))
    if (plan.width == 32)
      return plan.groups_a_step == 1 ? wgmma_slices_kernel<T, tile, 32, 1> : wgmma_slices_kernel<T, tile, 32, 2>;
  if constexpr (has_width(tile, 16))
    if (plan.width == 16)
      return plan.groups_a_step == 1 ? wgmma_slices_kernel<T, tile, 16, 1> : wgmma_slices_kernel<T, tile, 16, 4>;
  return wgmma_slices_kernel<T, tile, wgmma_step, 1>;
}
template <typename T>
SlicesKernel kernel_for_tile(const WgmmaGemmPlan& plan) {
  switch (plan.slices_tile) {
    case SlicesTile::t128x128:
      return kernel_for<T, SlicesTile::t128x128>(plan);
    case SlicesTile::t128x64:
      return kernel_for<T, SlicesTile::t128x64>(plan);
    case SlicesTile::t64x64:
      return kernel_for<T, SlicesTile::t64x64>(plan);
    case SlicesTile::t64x32:
      return kernel_for<T, SlicesTile::t64x32>(plan);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_slices(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const SlicesLaunch launch{
      .kernel =
          dispatch(p.storage, HalfTypes(), [&]<typename T>(std::type_identity<T>) { return kernel_for_tile<T>(plan); }),
      .tile = plan.slices_tile,
      .slices = plan.slices,
      .tiles_m = plan.tiles_m,
      .tiles_n = plan.tiles_n,
      .steps = plan.steps,
      .width = plan.width,
      .filters = in_whole_tiles(p, 1, plan.n()),
      .element = MapElement::half};
  return std::make_unique<BoundWgmmaSlices>(p, launch);
}

}  // namespace lenslet::cuda
