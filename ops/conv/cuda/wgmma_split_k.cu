// wgmma_gemm with cluster split-K, for few tiles and long gemm_k. Kernel: wgmma_split_k.cuh; tiles and splits:
// wgmma_gemm_plan.cpp.

#include "ops/conv/cuda/wgmma_split_k.h"

#include "ops/conv/cuda/wgmma_split_k_launch.cuh"

namespace lenslet::cuda {
namespace {

using HalfTypes = Types<Float16, BFloat16>;

template <typename T, SplitKTile tile>
SplitKKernel kernel_for(const WgmmaGemmPlan& plan) {
  if constexpr (has_width(tile, 32))
    if (plan.width == 32)
      return plan.k_groups_per_block == 1 ? wgmma_split_k_kernel<T, tile, 32, 1> : wgmma_split_k_kernel<T, tile, 32, 2>;
  if constexpr (has_width(tile, 16))
    if (plan.width == 16)
      return plan.k_groups_per_block == 1 ? wgmma_split_k_kernel<T, tile, 16, 1> : wgmma_split_k_kernel<T, tile, 16, 4>;
  return wgmma_split_k_kernel<T, tile, wgmma_step, 1>;
}
template <typename T>
SplitKKernel kernel_for_tile(const WgmmaGemmPlan& plan) {
  switch (plan.split_k_tile) {
    case SplitKTile::t128x128:
      return kernel_for<T, SplitKTile::t128x128>(plan);
    case SplitKTile::t128x64:
      return kernel_for<T, SplitKTile::t128x64>(plan);
    case SplitKTile::t64x64:
      return kernel_for<T, SplitKTile::t64x64>(plan);
    case SplitKTile::t64x32:
      return kernel_for<T, SplitKTile::t64x32>(plan);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_split_k(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const auto kernel =
      dispatch(p.storage, HalfTypes(), [&]<typename T>(std::type_identity<T>) { return kernel_for_tile<T>(plan); });
  return std::make_unique<BoundWgmmaSplitK>(p, split_k_launch(p, plan, kernel));
}

}  // namespace lenslet::cuda
