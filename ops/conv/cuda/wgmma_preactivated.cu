// Kernels of wgmma_preactivated: wgmma_preactivated.cuh.

#include "ops/conv/cuda/wgmma_preactivated.cuh"

#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_launch.cuh"
#include "ops/conv/cuda/wgmma_preactivated.h"

namespace lenslet::cuda {
namespace {

using PreactivatedKernel = void (*)(WgmmaPreactivated);
template <typename T, WgmmaTile tile>
PreactivatedKernel kernel_of(bool residual) {
  if constexpr (has_residual_layout(shape_of(tile)))
    if (residual) return wgmma_preactivated_kernel<T, tile, true>;
  return wgmma_preactivated_kernel<T, tile, false>;
}
template <typename T>
PreactivatedKernel kernel_of(WgmmaTile tile, bool residual) {
  return tile == WgmmaTile::t128x128   ? kernel_of<T, WgmmaTile::t128x128>(residual)
         : tile == WgmmaTile::t192x128 ? kernel_of<T, WgmmaTile::t192x128>(residual)
         : tile == WgmmaTile::t128x64  ? kernel_of<T, WgmmaTile::t128x64>(residual)
                                       : kernel_of<T, WgmmaTile::t192x64>(residual);
}

class BoundPreactivated final : public BoundKernel {
 public:
  BoundPreactivated(const PreactivatedProblem& p, const WgmmaGemmPlan& plan)
      : launch_(p.conv, plan, false),
        kernel_(dispatch(p.conv.storage, Types<Float16, BFloat16>(),
                         [&]<typename T>(std::type_identity<T>) { return kernel_of<T>(plan.tile, p.conv.residual); })),
        factors_at_(preactivated_factors_at(p.conv, plan)) {
    const Clamp clamp = DeviceActivation(p.activation).clamp();
    low_ = clamp.low, high_ = clamp.high;
  }

  void run(const KernelRun& run) const override {
    using Op = PreactivatedConvOp;
    WgmmaPreactivated call;
    call.factors = reinterpret_cast<const float4*>(run.blob + factors_at_);
    call.low = low_, call.high = high_;
    launch_.start(*run.cuda, kernel_, call,
                  {.x = run.in<void>(Op::input),
                   .x_pixel = run.inputs[Op::input].format().pixel_pitch,
                   .filters = run.blob,
                   .bias = run.in<float>(Op::bias),
                   .residual = run.in<void>(Op::residual),
                   .y = run.out<void>(),
                   .y_pixel = y_pixel(launch_.y_channels(), run)});
  }

 private:
  WgmmaLaunch launch_;
  PreactivatedKernel kernel_;
  std::size_t factors_at_;
  float low_ = 0, high_ = 0;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_preactivated(const PreactivatedProblem& problem,
                                                           const WgmmaGemmPlan& plan) {
  return std::make_unique<BoundPreactivated>(problem, plan);
}

}  // namespace lenslet::cuda
