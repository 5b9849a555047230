// Kernels of wgmma_layer_norm: wgmma_layer_norm.cuh.

#include "ops/conv/cuda/wgmma_layer_norm.cuh"

#include "ops/conv/cuda/preactivated_operands.cuh"
#include "ops/conv/cuda/wgmma_preactivated.h"
#include "ops/conv/cuda/wgmma_split_k_launch.cuh"

namespace lenslet::cuda {
namespace {

template <typename T>
SplitKKernel kernel_of(SplitKTile tile) {
  return tile == SplitKTile::t128x64  ? wgmma_layer_norm_kernel<T, SplitKTile::t128x64>
         : tile == SplitKTile::t64x64 ? wgmma_layer_norm_kernel<T, SplitKTile::t64x64>
                                      : wgmma_layer_norm_kernel<T, SplitKTile::t64x32>;
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_layer_norm(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const auto kernel = dispatch(p.storage, Types<Float16, BFloat16>(),
                               [&]<typename T>(std::type_identity<T>) { return kernel_of<T>(plan.split_k_tile); });
  SplitKLaunch described = split_k_launch(p, plan, kernel);
  described.more_threads = moments_threads;
  described.more_shared_bytes = moments_bytes(plan.split_k_tile);
  const WgmmaSplitKLaunch launch(p, described);
  return bound([launch, p, floats_at = preactivated_floats_at(p, plan)](const KernelRun& run) {
    launch.start(*run.cuda, preactivated_operands(p, floats_at, run));
  });
}

}  // namespace lenslet::cuda
