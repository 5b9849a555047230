// wgmma_halo with cluster split-K, for few tiles and long gemm_k. Kernel: wgmma_halo_split_k.cuh; tiles and splits:
// wgmma_halo_split_k_plan.cpp.

#include "ops/conv/cuda/wgmma_halo_split_k.h"

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_halo_split_k.cuh"
#include "ops/conv/cuda/wgmma_maps.cuh"

namespace lenslet::cuda {
namespace {

using HaloSplitKKernel = void (*)(HaloSplitK);

template <typename T>
HaloSplitKKernel kernel_for(const HaloSplitKPlan& plan) {
  return plan.stage_taps == 3 ? wgmma_halo_split_k_kernel<T, 3> : wgmma_halo_split_k_kernel<T, 1>;
}

class BoundHaloSplitK final : public BoundKernel {
 public:
  BoundHaloSplitK(const ConvProblem& p, const HaloSplitKPlan& plan)
      : problem_(p),
        plan_(plan),
        kernel_(dispatch(p.storage, Types<Float16, BFloat16, float>(),
                         [&]<typename T>(std::type_identity<T>) { return kernel_for<T>(plan); })) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    const auto byte = [](std::int64_t value) { return static_cast<std::uint8_t>(value); };
    call_.walk = UnitWalk(p, halo_split_k_unit(p));
    call_.activation = DeviceActivation(p.activation);
    call_.p = narrow(p.p);
    call_.q = narrow(p.q);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.padding = static_cast<std::int16_t>(call_.k - p.k);
    call_.pad_top = static_cast<std::int16_t>(p.pad_top);
    call_.pad_left = static_cast<std::int16_t>(p.pad_left);
    call_.r = byte(p.r);
    call_.s = byte(p.s);
    call_.dilation_h = byte(p.dilation_h);
    call_.dilation_w = byte(p.dilation_w);
    call_.filter_stages = byte(plan.filter_stages);
    call_.halo_stages = byte(plan.halo_stages);
    call_.split_k_log2 = byte(log2_of(plan.split_k));
    call_.k_groups = narrow(plan.k_groups);
    call_.tiles_n = narrow(plan.tiles_n);
  }

  void run(const KernelRun& run) const override {
    const ConvProblem& p = problem_;
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const auto side = [](int value) { return static_cast<std::uint32_t>(value); };
    const bool tf32 = p.storage == DType::f32;
    const MapElement element = tf32 ? MapElement::tf32 : MapElement::half;
    const int channels = halo_split_k_row_bytes / static_cast<int>(dtype_bytes(p.storage));
    HaloSplitK call = call_;
    call.halo_tiles = tiled_map(run.in<void>(ConvOp::input), std::array{size(p.c), size(p.w), size(p.h), size(p.n)},
                                std::array{side(channels), side(plan_.columns), side(plan_.lines), 1U}, element,
                                size(map_pitch(p.c, element)));
    call.filters = filter_operand(p, halo_filters(p, 1), run.blob, halo_split_k_filters, channels, element);
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(p.k, run));
    const auto shared_bytes = static_cast<std::size_t>(plan_.total);
    allow_shared_bytes(kernel_, shared_bytes);
    launch_clusters(*run.cuda, kernel_, static_cast<unsigned>(plan_.units * plan_.tiles_n * plan_.split_k),
                    halo_split_k_threads, static_cast<unsigned>(plan_.split_k), shared_bytes, call);
  }

 private:
  ConvProblem problem_;
  HaloSplitKPlan plan_;
  HaloSplitKKernel kernel_;
  HaloSplitK call_;  // lacks what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_halo_split_k(const ConvProblem& p, const HaloSplitKPlan& plan) {
  return std::make_unique<BoundHaloSplitK>(p, plan);
}

}  // namespace lenslet::cuda
