// wgmma_tf32: large float32 convolutions as TF32 products on Hopper's tensor cores, where the network allows it: one
// GEMM whose A operand, the windows, TMA reads in im2col mode and rounds. fp32 accumulators in the order c, r, s by
// groups of channels, whatever the tile (goes_by_channels). Kernel: wgmma_tf32.cuh; cluster split-K for few tiles, in
// the order r, s, c: wgmma_tf32_slices.cu; tiles: wgmma_tf32_plan.cpp.

#include "ops/conv/cuda/wgmma_tf32.cuh"

#include <algorithm>
#include <string_view>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_maps.cuh"
#include "ops/conv/cuda/wgmma_tf32_slices.h"
#include "ops/core/sum_tolerance.h"

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
        kernel_(kernel_for(plan.tile, p.residual)) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.walk = WindowWalk<std::int16_t>(p);
    const ConvProblem set = group_set(p, plan.together);
    call_.terms = TermOrder(set);
    call_.by_channels = goes_by_channels(set) ? 1 : 0;
    call_.tail = TermTail(set, wgmma_tf32_step);
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
                         call.tail.instructions(call.terms, wgmma_tf32_step) * wgmma_tf32_step / 4, MapElement::tf32);
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
                     std::array{std::uint32_t{tf32_staged_filters}, std::uint32_t{tf32_staged_rows}}, size(pitch),
                     MapElement::f32);
  }

  ConvProblem problem_;
  WgmmaTileShape shape_;
  WgmmaFilters filters_;
  Tf32Kernel kernel_;
  WgmmaTf32 call_;  // lacks what depends on addresses
};

class WgmmaTf32Conv final : public WgmmaConv {
 public:
  std::string_view name() const override { return "wgmma_tf32"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    if (wgmma_tf32_cuts(p).empty()) return wgmma_sets_refusal;
    std::size_t shared_bytes = 0;
    for (const WgmmaTileShape& shape : wgmma_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(tf32_shared_of(shape, p.residual).total));
    for (const SlicesTileShape& shape : slices_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(shared_of(shape).total));
    if (auto reason = target.device.refuse_shared(shared_bytes)) return reason;
    // The kernel has 32-bit pixel indices, tensor maps 32-bit coordinates.
    constexpr std::int64_t limit = 1 << 30;
    if (p.n > limit / p.p / p.q || p.n > limit / p.h / p.w) return "more than 2^30 pixels";
    if (p.c > limit / p.h / p.w || p.k > limit / p.r / p.s || p.c > limit / p.r / p.s)
      return "an image or the filters have more than 2^30 elements";
    if (p.n * p.p * p.q > limit / ((p.k + 63) / 64)) return "more than 2^30 tiles";
    if (is_pointwise(p)) return std::nullopt;
    return refuse_im2col(p);
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const WgmmaTf32Plan cut = plan_wgmma_tf32(p);
    const std::int64_t terms = p.group_c() * p.r * p.s;
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.storage),
            .pitched = true,
            .config = cut.str(),
            .estimated_us = wgmma_tf32_us(p, cut, target.device),
            .tolerance = tf32_sum_tolerance(terms) + sum_tolerance(terms)};
  }

  WgmmaFilters filters_of(const ConvProblem& p, std::string_view config) const override {
    const WgmmaTf32Plan plan = read_wgmma_tf32_plan(p, config);
    return in_whole_tiles(p, plan.together, plan.n());
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    const WgmmaTf32Plan plan = read_wgmma_tf32_plan(p, config);
    if (plan.slices > 0) return bind_wgmma_tf32_slices(p, plan);
    return std::make_unique<BoundWgmmaTf32>(p, plan);
  }
};

}  // namespace

const Kernel& conv_wgmma_tf32() {
  static const WgmmaTf32Conv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
