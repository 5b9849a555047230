// wgmma_slices: wgmma_gemm for problems of few tiles and long sums. The kernel is in wgmma_slices.cuh, tiles and slices
// are chosen in wgmma_gemm_plan.cpp.

#include "ops/conv/cuda/wgmma_slices.cuh"

#include "ops/conv/algorithm.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_maps.cuh"
#include "ops/conv/cuda/wgmma_slices.h"

namespace lenslet::cuda {
namespace {

using HalfTypes = Types<Float16, BFloat16>;

using SlicesKernel = void (*)(WgmmaSlices);
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

class BoundWgmmaSlices final : public BoundKernel {
 public:
  BoundWgmmaSlices(const ConvProblem& p, const WgmmaGemmPlan& plan) : problem_(p), plan_(plan) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    kernel_ =
        dispatch(p.storage, HalfTypes(), [&]<typename T>(std::type_identity<T>) { return kernel_for_tile<T>(plan); });
    call_.walk = WindowWalk(p);
    call_.terms = TermOrder(p);
    call_.activation = DeviceActivation(p.activation);
    call_.pointwise = is_pointwise(p) ? 1 : 0;
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.k = narrow(p.k);
    call_.steps = narrow(plan.steps);
    call_.slices_log2 = log2_of(plan.slices);
    call_.tiles_n = narrow(plan.tiles_n);
  }

  void run(const KernelRun& run) const override {
    WgmmaSlices call = call_;
    call.windows = window_operand(problem_, run.in<void>(ConvOp::input), plan_.m(), plan_.width);
    call.filters = filter_operand(problem_, run.blob, plan_.n(), plan_.width);
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(problem_.k, run));
    const auto shared_bytes = static_cast<std::size_t>(shared_of(shape_of(plan_.slices_tile)).total);
    allow_shared_bytes(kernel_, shared_bytes);
    launch_clusters(*run.cuda, kernel_, static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n * plan_.slices),
                    static_cast<unsigned>(128 * (plan_.m() / 64) + 32), static_cast<unsigned>(plan_.slices),
                    shared_bytes, call);
  }

 private:
  ConvProblem problem_;
  WgmmaGemmPlan plan_;
  SlicesKernel kernel_ = nullptr;
  WgmmaSlices call_;  // but for what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_slices(const ConvProblem& problem, const WgmmaGemmPlan& plan) {
  return std::make_unique<BoundWgmmaSlices>(problem, plan);
}

}  // namespace lenslet::cuda
