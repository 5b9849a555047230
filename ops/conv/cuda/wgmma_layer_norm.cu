// Kernels of wgmma_layer_norm: wgmma_layer_norm.cuh.

#include "ops/conv/cuda/wgmma_layer_norm.cuh"

#include "ops/conv/cuda/preactivated_operands.cuh"
#include "ops/conv/cuda/wgmma_launch.cuh"
#include "ops/conv/cuda/wgmma_preactivated.h"
#include "ops/conv/cuda/wgmma_split_k_launch.cuh"

namespace lenslet::cuda {
namespace {

using HalfTypes = Types<Float16, BFloat16>;
using PersistentKernel = void (*)(WgmmaLayerNorm);

template <typename T>
PersistentKernel kernel_of(WgmmaTile tile) {
  return tile == WgmmaTile::t128x256   ? static_cast<PersistentKernel>(wgmma_layer_norm_kernel<T, WgmmaTile::t128x256>)
         : tile == WgmmaTile::t192x128 ? static_cast<PersistentKernel>(wgmma_layer_norm_kernel<T, WgmmaTile::t192x128>)
         : tile == WgmmaTile::t128x128 ? static_cast<PersistentKernel>(wgmma_layer_norm_kernel<T, WgmmaTile::t128x128>)
         : tile == WgmmaTile::t192x64  ? static_cast<PersistentKernel>(wgmma_layer_norm_kernel<T, WgmmaTile::t192x64>)
                                       : static_cast<PersistentKernel>(wgmma_layer_norm_kernel<T, WgmmaTile::t128x64>);
}
template <typename T>
SplitKKernel kernel_of(SplitKTile tile) {
  return tile == SplitKTile::t128x64  ? static_cast<SplitKKernel>(wgmma_layer_norm_kernel<T, SplitKTile::t128x64>)
         : tile == SplitKTile::t64x64 ? static_cast<SplitKKernel>(wgmma_layer_norm_kernel<T, SplitKTile::t64x64>)
                                      : static_cast<SplitKKernel>(wgmma_layer_norm_kernel<T, SplitKTile::t64x32>);
}
template <typename Tile>
auto kernel_of(DType dtype, Tile tile) {
  return dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) { return kernel_of<T>(tile); });
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_layer_norm(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const std::size_t floats_at = preactivated_floats_at(p, plan);
  if (plan.split_k == 0)
    return bound([=, kernel = kernel_of(p.storage, plan.tile),
                  launch = WgmmaLaunch(p, plan, false, moments_extras(plan.tile))](const KernelRun& run) {
      launch.start(*run.cuda, kernel, preactivated_operands(p, floats_at, run));
    });
  const WgmmaSplitKLaunch launch(p, {.kernel = kernel_of(p.storage, plan.split_k_tile),
                                     .tile = plan.split_k_tile,
                                     .split_k = plan.split_k,
                                     .tiles_m = plan.tiles_m,
                                     .tiles_n = plan.tiles_n,
                                     .steps = plan.steps,
                                     .width = plan.width,
                                     .filters = in_whole_tiles(p, 1, plan.n()),
                                     .extras = moments_extras(plan.split_k_tile)});
  return bound([=](const KernelRun& run) { launch.start(*run.cuda, preactivated_operands(p, floats_at, run)); });
}

}  // namespace lenslet::cuda
