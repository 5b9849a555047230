// wgmma_patch with cluster split-K, for few tiles and long gemm_k. Kernel: wgmma_patch_slices.cuh; tiles and splits:
// wgmma_patch_slices_plan.cpp.

#include "ops/conv/cuda/wgmma_patch_slices.h"

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_maps.cuh"
#include "ops/conv/cuda/wgmma_patch_slices.cuh"

namespace lenslet::cuda {
namespace {

using PatchSlicesKernel = void (*)(PatchSlices);

template <typename T>
PatchSlicesKernel kernel_for(const PatchSlicesPlan& plan) {
  return plan.stage_taps == 3 ? wgmma_patch_slices_kernel<T, 3> : wgmma_patch_slices_kernel<T, 1>;
}

class BoundPatchSlices final : public BoundKernel {
 public:
  BoundPatchSlices(const ConvProblem& p, const PatchSlicesPlan& plan)
      : problem_(p),
        plan_(plan),
        kernel_(dispatch(p.storage, Types<Float16, BFloat16, float>(),
                         [&]<typename T>(std::type_identity<T>) { return kernel_for<T>(plan); })) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    const auto byte = [](std::int64_t value) { return static_cast<std::uint8_t>(value); };
    call_.walk = UnitWalk(p, patch_slices_unit(p));
    call_.activation = DeviceActivation(p.activation);
    call_.p = narrow(p.p);
    call_.q = narrow(p.q);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.room = static_cast<std::int16_t>(call_.k - p.k);
    call_.pad_top = static_cast<std::int16_t>(p.pad_top);
    call_.pad_left = static_cast<std::int16_t>(p.pad_left);
    call_.r = byte(p.r);
    call_.s = byte(p.s);
    call_.dilation_h = byte(p.dilation_h);
    call_.dilation_w = byte(p.dilation_w);
    call_.filter_stages = byte(plan.filter_stages);
    call_.patch_stages = byte(plan.patch_stages);
    call_.slices_log2 = byte(log2_of(plan.slices));
    call_.groups = narrow(plan.groups);
    call_.tiles_n = narrow(plan.tiles_n);
  }

  void run(const KernelRun& run) const override {
    const ConvProblem& p = problem_;
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const auto side = [](int value) { return static_cast<std::uint32_t>(value); };
    const bool tf32 = p.storage == DType::f32;
    const MapElement element = tf32 ? MapElement::tf32 : MapElement::half;
    const int channels = patch_slices_row_bytes / static_cast<int>(dtype_bytes(p.storage));
    PatchSlices call = call_;
    call.patches = tiled_map(run.in<void>(ConvOp::input), std::array{size(p.c), size(p.w), size(p.h), size(p.n)},
                             std::array{side(channels), side(plan_.columns), side(plan_.lines), 1U},
                             size(map_pitch(p.c, element)), element);
    call.filters = filter_operand(p, patch_filters(p, 1), run.blob, patch_slices_filters, channels, element);
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(p.k, run));
    const auto shared_bytes = static_cast<std::size_t>(plan_.total);
    allow_shared_bytes(kernel_, shared_bytes);
    launch_clusters(*run.cuda, kernel_, static_cast<unsigned>(plan_.units * plan_.tiles_n * plan_.slices),
                    patch_slices_threads, static_cast<unsigned>(plan_.slices), shared_bytes, call);
  }

 private:
  ConvProblem problem_;
  PatchSlicesPlan plan_;
  PatchSlicesKernel kernel_;
  PatchSlices call_;  // lacks what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_patch_slices(const ConvProblem& p, const PatchSlicesPlan& plan) {
  return std::make_unique<BoundPatchSlices>(p, plan);
}

}  // namespace lenslet::cuda
