// wgmma_tf32: large float32 convolutions as TF32 products on Hopper's tensor cores, where the network allows it: one
// GEMM whose A operand, the windows, TMA reads in im2col mode and rounds. fp32 accumulators in the order c, r, s by
// groups of channels, whatever the tile (goes_by_channels). Kernel: wgmma_tf32.cuh; cluster split-K for few tiles, in
// the order r, s, c: wgmma_tf32_split_k.cu; tiles: wgmma_tf32_plan.cpp; refusals:
// wgmma_tf32.cpp.

#include "ops/conv/cuda/wgmma_tf32.cuh"

#include <algorithm>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_launch.cuh"

namespace lenslet::cuda {
namespace {

using Tf32Kernel = void (*)(WgmmaTf32);
template <WgmmaTile tile>
Tf32Kernel kernel_of(bool residual) {
  if constexpr (tf32_has_residual_layout(shape_of(tile)))
    if (residual) return wgmma_gemm_kernel<float, tile, wgmma_tf32_step, 1, true>;
  return wgmma_gemm_kernel<float, tile, wgmma_tf32_step, 1, false>;
}
Tf32Kernel kernel_for(WgmmaTile tile, bool residual) {
  switch (tile) {
    case WgmmaTile::t128x256:
      return kernel_of<WgmmaTile::t128x256>(residual);
    case WgmmaTile::t256x128:
      return kernel_of<WgmmaTile::t256x128>(residual);
    case WgmmaTile::t128x128:
      return kernel_of<WgmmaTile::t128x128>(residual);
    case WgmmaTile::t256x96:
      return kernel_of<WgmmaTile::t256x96>(residual);
    case WgmmaTile::t128x96:
      return kernel_of<WgmmaTile::t128x96>(residual);
    case WgmmaTile::t256x64:
      return kernel_of<WgmmaTile::t256x64>(residual);
    case WgmmaTile::t128x64:
      return kernel_of<WgmmaTile::t128x64>(residual);
    case WgmmaTile::t256x32:
      return kernel_of<WgmmaTile::t256x32>(residual);
    case WgmmaTile::t192x128:
      return kernel_of<WgmmaTile::t192x128>(residual);
    case WgmmaTile::t192x64:
      return kernel_of<WgmmaTile::t192x64>(residual);
    case WgmmaTile::t128x208:
      return nullptr;
  }
  return nullptr;
}

class BoundWgmmaTf32 final : public BoundKernel {
 public:
  BoundWgmmaTf32(const ConvProblem& p, const WgmmaTf32Plan& plan)
      : problem_(p),
        shape_(shape_of(plan.tile)),
        filters_(in_whole_tiles(p, plan.together, plan.n())),
        kernel_(kernel_for(plan.tile, p.residual)),
        call_(call_of(p, plan, wgmma_tf32_step, true)) {}

  void run(const KernelRun& run) const override {
    WgmmaTf32 call = call_;
    call.windows = window_operand(problem_, run.in<void>(ConvOp::input), shape_.m, wgmma_tf32_step, MapElement::tf32);
    call.filters = filter_operand(problem_, filters_, run.blob, shape_.n, wgmma_tf32_step, MapElement::tf32);
    call.bias = run.in<float>(ConvOp::bias);
    call.results = results(run.out<void>(), y_pixel(call.k, run));
    if (const void* residual = run.in<void>(ConvOp::residual); residual != nullptr) {
      call.residuals_or_tails = results(residual, call.k);
      call.adds_residual = 1;
    }
    if (call.tail.exists())
      call.residuals_or_tails =
          window_operand(problem_, run.in<void>(ConvOp::input), shape_.m,
                         call.tail.instructions(call.k_order, wgmma_tf32_step) * wgmma_tf32_step / 4, MapElement::tf32);
    const auto shared_bytes = static_cast<std::size_t>(tf32_shared_of(shape_, problem_.residual).total);
    allow_shared_bytes(kernel_, shared_bytes);
    const int blocks = std::min(call.tiles, run.cuda->multiprocessors);
    launch(*run.cuda, kernel_, static_cast<unsigned>(blocks), wgmma_threads(shape_.consumers), shared_bytes, call);
  }

 private:
  /// `pitch`: floats from pixel to pixel.
  CUtensorMap results(const void* y, std::int64_t pitch) const {
    const ConvProblem& p = problem_;
    const auto size = [](auto value) { return static_cast<std::uint64_t>(value); };
    return tiled_map(y, std::array{size(call_.k), size(p.n * p.p * p.q)},
                     std::array{std::uint32_t{tf32_staged_filters}, std::uint32_t{tf32_staged_rows}}, MapElement::f32,
                     size(pitch));
  }

  ConvProblem problem_;
  WgmmaTileShape shape_;
  WgmmaFilters filters_;
  Tf32Kernel kernel_;
  WgmmaTf32 call_;  // lacks what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_tf32(const ConvProblem& p, const WgmmaTf32Plan& plan) {
  return std::make_unique<BoundWgmmaTf32>(p, plan);
}

}  // namespace lenslet::cuda
