// wgmma_gemm: large 16-bit convolutions on Hopper's tensor cores, as one GEMM whose A operand, the windows, TMA reads
// in im2col mode. fp32 accumulators in the order r, s, c, or c, r, s by groups of channels (goes_by_channels), whatever
// the tile. Kernel: wgmma_gemm.cuh; split-K for few tiles: wgmma_split_k.cu; tiles: wgmma_gemm_plan.cpp; refusals:
// wgmma_gemm.cpp.

#include "ops/conv/cuda/wgmma_gemm.cuh"

#include <algorithm>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_maps.cuh"

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
    case WgmmaTile::t192x96:
      return kernel_for<T, WgmmaTile::t192x96>(plan, residual);
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
  BoundWgmmaGemm(const ConvProblem& p, const WgmmaGemmPlan& plan)
      : problem_(p),
        shape_(shape_of(plan.tile)),
        width_(plan.width),
        filters_(in_whole_tiles(p, plan.together, plan.n())),
        lasting_(plan.lasting_stages(shared_of(shape_, p.residual).stages)),
        kernel_(kernel_for(p, plan)) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.walk = WindowWalk<std::int16_t>(p);
    const ConvProblem set = group_set(p, plan.together);
    call_.k_order = KOrder(set);
    call_.by_channels = plan.k_groups_per_block == 1 && goes_by_channels(set) ? 1 : 0;
    call_.tail = KTail(set, plan.width);
    call_.activation = DeviceActivation(p.activation);
    call_.pointwise = is_pointwise(p) ? 1 : 0;
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.biases = narrow(p.k);
    call_.steps = narrow(plan.steps);
    call_.tiles = narrow(plan.tiles_m * plan.tiles_n);
    call_.tiles_n = narrow(plan.tiles_n);
    if (plan.sets > 1) call_.sets = {narrow(plan.tiles_n / plan.sets), narrow(set.c)};
  }

  void run(const KernelRun& run) const override {
    WgmmaGemm call = call_;
    call.windows = window_operand(problem_, run.in<void>(ConvOp::input), shape_.m, width_, MapElement::half);
    call.filters = filter_operand(problem_, filters_, run.blob, shape_.n, width_, MapElement::half);
    call.bias = run.in<float>(ConvOp::bias);
    call.results = results(run.out<void>(), y_pixel(call.k, run));
    if (const void* residual = run.in<void>(ConvOp::residual); residual != nullptr) {
      call.residuals_or_tails = results(residual, call.k);
      call.adds_residual = 1;
    }
    if (call.tail.exists())
      call.residuals_or_tails =
          window_operand(problem_, run.in<void>(ConvOp::input), shape_.m,
                         call.tail.instructions(call.k_order, width_) * width_ / 4, MapElement::half);
    const WgmmaShared shared = shared_of(shape_, problem_.residual);
    const auto shared_bytes = static_cast<std::size_t>(shared.total);
    const int multiprocessors = run.cuda->multiprocessors;
    const auto even = static_cast<int>(blocks_of_same_filters(multiprocessors, call.tiles_n));
    const bool lasts = lasting_ > 0 && even > 0;
    call.filters_last = lasts ? 1 : 0;
    call.stages = lasts ? lasting_ : shared.stages;
    allow_shared_bytes(kernel_, shared_bytes);
    launch(*run.cuda, kernel_, static_cast<unsigned>(std::min(call.tiles, lasts ? even : multiprocessors)),
           wgmma_threads(shape_.consumers), shared_bytes, call);
  }

 private:
  /// `pitch`: elements from pixel to pixel.
  CUtensorMap results(const void* y, std::int64_t pitch) const {
    const ConvProblem& p = problem_;
    const auto size = [](auto value) { return static_cast<std::uint64_t>(value); };
    return tiled_map(y, std::array{size(call_.k), size(p.n * p.p * p.q)},
                     std::array{static_cast<std::uint32_t>(staged_filters(shape_.n)), std::uint32_t{staged_rows}},
                     MapElement::half, size(pitch));
  }

  ConvProblem problem_;
  WgmmaTileShape shape_;
  int width_;
  WgmmaFilters filters_;
  int lasting_;
  WgmmaKernel kernel_;
  WgmmaGemm call_;  // lacks what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_gemm(const ConvProblem& p, const WgmmaGemmPlan& plan) {
  return std::make_unique<BoundWgmmaGemm>(p, plan);
}

}  // namespace lenslet::cuda
