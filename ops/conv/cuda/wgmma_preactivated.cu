// Kernels of wgmma_preactivated: wgmma_preactivated.cuh.

#include "ops/conv/cuda/wgmma_preactivated.cuh"

#include "ops/conv/cuda/preactivated_operands.cuh"
#include "ops/conv/cuda/wgmma_launch.cuh"

namespace lenslet::cuda {
namespace {

using PersistentKernel = void (*)(WgmmaGemm);
template <typename T, WgmmaTile tile>
PersistentKernel kernel_of(bool residual) {
  if constexpr (has_residual_layout(shape_of(tile)))
    if (residual) return wgmma_preactivated_kernel<T, tile, true>;
  return wgmma_preactivated_kernel<T, tile, false>;
}
template <typename T>
PersistentKernel kernel_of(WgmmaTile tile, bool residual) {
  return tile == WgmmaTile::t128x128  ? kernel_of<T, WgmmaTile::t128x128>(residual)
         : tile == WgmmaTile::t128x64 ? kernel_of<T, WgmmaTile::t128x64>(residual)
                                      : kernel_of<T, WgmmaTile::t192x64>(residual);
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_preactivated(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  const auto kernel = dispatch(p.storage, Types<Float16, BFloat16>(),
                               [&]<typename T>(std::type_identity<T>) { return kernel_of<T>(plan.tile, p.residual); });
  const WgmmaLaunch launch(p, plan);
  return bound([=, floats_at = preactivated_floats_at(p, plan)](const KernelRun& run) {
    launch.start(*run.cuda, kernel, preactivated_operands(p, floats_at, run));
  });
}

}  // namespace lenslet::cuda
