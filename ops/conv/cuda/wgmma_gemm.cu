// wgmma_gemm: large 16-bit convolutions on Hopper's tensor cores, as one GEMM whose A operand, the windows, TMA reads
// in im2col mode. fp32 accumulators in the order r, s, c, or c, r, s by groups of channels (goes_by_channels), whatever
// the tile. Kernel: wgmma_gemm.cuh; split-K for few tiles: wgmma_split_k.cu; tiles: wgmma_gemm_plan.cpp; refusals:
// wgmma_gemm.cpp.

#include "ops/conv/cuda/wgmma_gemm.cuh"

#include <algorithm>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_launch.cuh"

namespace lenslet::cuda {
namespace {

using HalfTypes = Types<Float16, BFloat16>;

using WgmmaKernel = void (*)(WgmmaGemm);
template <typename T, WgmmaTile tile, bool residual>
WgmmaKernel kernel_of(const WgmmaGemmPlan& plan) {
  if constexpr (has_width(tile, 32))
    if (plan.width == 32)
      return plan.k_groups_per_block == 1 ? wgmma_gemm_kernel<T, tile, 32, 1, residual>
                                          : wgmma_gemm_kernel<T, tile, 32, 2, residual>;
  if constexpr (has_width(tile, 16))
    if (plan.width == 16)
      return plan.k_groups_per_block == 1 ? wgmma_gemm_kernel<T, tile, 16, 1, residual>
                                          : wgmma_gemm_kernel<T, tile, 16, 4, residual>;
  return wgmma_gemm_kernel<T, tile, wgmma_step, 1, residual>;
}
template <typename T, WgmmaTile tile>
WgmmaKernel kernel_for(const WgmmaGemmPlan& plan, bool residual) {
  if constexpr (has_residual_layout(shape_of(tile)))
    if (residual) return kernel_of<T, tile, true>(plan);
  return kernel_of<T, tile, false>(plan);
}
template <typename T>
WgmmaKernel kernel_for_tile(const WgmmaGemmPlan& plan, bool residual) {
  switch (plan.tile) {
    case WgmmaTile::t128x256:
      return kernel_for<T, WgmmaTile::t128x256>(plan, residual);
    case WgmmaTile::t256x128:
      return kernel_for<T, WgmmaTile::t256x128>(plan, residual);
    case WgmmaTile::t128x128:
      return kernel_for<T, WgmmaTile::t128x128>(plan, residual);
    case WgmmaTile::t256x96:
      return kernel_for<T, WgmmaTile::t256x96>(plan, residual);
    case WgmmaTile::t128x96:
      return kernel_for<T, WgmmaTile::t128x96>(plan, residual);
    case WgmmaTile::t256x64:
      return kernel_for<T, WgmmaTile::t256x64>(plan, residual);
    case WgmmaTile::t128x64:
      return kernel_for<T, WgmmaTile::t128x64>(plan, residual);
    case WgmmaTile::t256x32:
      return kernel_for<T, WgmmaTile::t256x32>(plan, residual);
    case WgmmaTile::t128x208:
      return kernel_for<T, WgmmaTile::t128x208>(plan, residual);
    case WgmmaTile::t192x128:
      return kernel_for<T, WgmmaTile::t192x128>(plan, residual);
    case WgmmaTile::t192x64:
      return kernel_for<T, WgmmaTile::t192x64>(plan, residual);
  }
  return nullptr;
}
WgmmaKernel kernel_for(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  return dispatch(p.storage, HalfTypes(),
                  [&]<typename T>(std::type_identity<T>) { return kernel_for_tile<T>(plan, p.residual); });
}

class BoundWgmmaGemm final : public BoundKernel {
 public:
  BoundWgmmaGemm(const ConvProblem& p, const WgmmaGemmPlan& plan) : launch_(p, plan), kernel_(kernel_for(p, plan)) {}

  void run(const KernelRun& run) const override {
    launch_.start(*run.cuda, kernel_,
                  {.x = run.in<void>(ConvOp::input),
                   .filters = run.blob,
                   .bias = run.in<float>(ConvOp::bias),
                   .residual = run.in<void>(ConvOp::residual),
                   .y = run.out<void>(),
                   .y_pixel = y_pixel(launch_.y_channels(), run)});
  }

 private:
  WgmmaLaunch launch_;
  WgmmaKernel kernel_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_gemm(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  return std::make_unique<BoundWgmmaGemm>(p, plan);
}

}  // namespace lenslet::cuda
