// separable: a depthwise 3x3 and the 1x1 behind it in one kernel, NHWC, 16 bits or float32 in TF32, for SeparableConv.
// Kernels: separable.cuh; refusals and filters: separable.cpp.

#include "base/aligned_format.h"
#include "base/cuda/launch.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/separable.h"

namespace lenslet::cuda {
namespace {

SeparableFunction kernel_of(const SeparableProblem& problem, const SeparableTiling& tiling) {
  const DType storage = problem.depthwise.storage;
  const auto of = storage == DType::f32   ? separable_of_tf32
                  : storage == DType::f16 ? separable_of_fp16
                                          : separable_of_bf16;
  return of(problem.depthwise.stride_h, tiling);
}

class BoundSeparable final : public BoundKernel {
 public:
  BoundSeparable(const SeparableProblem& problem, const SeparableTiling& tiling)
      : kernel_(kernel_of(problem, tiling)), tiling_(tiling) {
    const SeparableSizes sizes(problem);
    const ConvProblem &d = problem.depthwise, &p = problem.pointwise;
    shared_bytes_ = sizes.shared_bytes(tiling);
    groups_ = static_cast<unsigned>(sizes.groups(tiling));
    taps_at_ = sizes.groups(tiling) * sizes.chunks * tiling.tiles * 32;
    chunk_taps_ = sizes.chunk_taps();
    call_.height = static_cast<int>(d.h);
    call_.width = static_cast<int>(d.w);
    call_.c = static_cast<int>(d.c);
    call_.x_pixel = static_cast<int>(aligned_channels(d.c, d.storage));
    call_.p = static_cast<int>(d.p);
    call_.q = static_cast<int>(d.q);
    call_.k = static_cast<int>(p.k);
    call_.k_pitch = static_cast<int>(aligned_channels(p.k, p.storage));
    call_.pad_top = static_cast<int>(d.pad_top);
    call_.pad_left = static_cast<int>(d.pad_left);
    call_.items = static_cast<int>(sizes.items(tiling));
    call_.turns = static_cast<int>(sizes.turns(tiling));
    call_.chunks = static_cast<int>(sizes.chunks);
    call_.warp_chunks = static_cast<int>(sizes.warp_chunks(tiling));
    call_.pixel_warps = tiling.pixel_warps;
    call_.channel_warps = tiling.channel_warps;
    call_.columns = FastDivider((d.q + tiling.columns - 1) / tiling.columns);
    call_.strips = FastDivider((d.p + 1) / 2);
    call_.depthwise_activation = DeviceActivation(d.activation);
    call_.activation = DeviceActivation(p.activation);
  }

  void run(const KernelRun& run) const override {
    SeparableCall call = call_;
    call.x = run.in<void>(SeparableConvOp::input);
    call.residual = run.in<void>(SeparableConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(call.k, run));
    call.filters = reinterpret_cast<const uint4*>(run.blob);
    call.taps = call.filters + taps_at_;
    call.biases = call.taps + call_.chunks * chunk_taps_;
    allow_shared_bytes(kernel_, shared_bytes_);
    launch(*run.cuda, kernel_, dim3(static_cast<unsigned>(tiling_.blocks), groups_),
           static_cast<unsigned>(32 * tiling_.warps()), shared_bytes_, call);
  }

 private:
  SeparableFunction kernel_;
  SeparableTiling tiling_;
  SeparableCall call_{};
  unsigned groups_ = 1;
  std::size_t shared_bytes_ = 0;
  std::int64_t taps_at_ = 0, chunk_taps_ = 0;  // in 16 bytes
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_separable(const SeparableProblem& problem, const SeparableTiling& tiling) {
  return std::make_unique<BoundSeparable>(problem, tiling);
}

}  // namespace lenslet::cuda
