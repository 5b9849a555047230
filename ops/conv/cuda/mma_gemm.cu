// mma_gemm: convolution as one GEMM per group on tensor cores, windows gathered from the input in the main loop: 16-bit
// elements, and TF32 where the network allows it. Kernel: mma_gemm.cuh; tiles and split-K: mma_gemm_plan.cpp; refusals
// and filters: mma_gemm.cpp. Groups too small for vectors are merged: an infinity times a zero across groups gives NaN,
// as in Winograd.

#include "ops/conv/cuda/mma_gemm.cuh"

#include "ops/conv/conv.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet::cuda {
namespace {

struct TileKernel {
  void (*kernel)(MmaGemm) = nullptr;
  std::size_t shared_bytes = 0;
};

template <typename T, MmaAccess access>
TileKernel kernel_for(MmaTile wanted) {
  TileKernel found;
  MmaTilesFor<access>::with(wanted, [&]<MmaTile tile>() {
    found = {mma_gemm_kernel<MmaTraits<tile>, T, access>, mma_shared_bytes<MmaTraits<tile>>()};
  });
  return found;
}

template <typename T>
TileKernel kernel_for(MmaTile tile, MmaAccess access) {
  if (access == MmaAccess::vectors) return kernel_for<T, MmaAccess::vectors>(tile);
  if constexpr (sizeof(T) == 2)
    if (access == MmaAccess::halves) return kernel_for<T, MmaAccess::halves>(tile);
  return kernel_for<T, MmaAccess::words>(tile);
}

TileKernel kernel_for(const ConvProblem& p, MmaTile tile) {
  const MmaAccess access = mma_access(p);
  if (p.storage == DType::f16) return kernel_for<Float16>(tile, access);
  if (p.storage == DType::bf16) return kernel_for<BFloat16>(tile, access);
  return kernel_for<float>(tile, access);
}

class BoundMmaGemm final : public BoundKernel {
 public:
  BoundMmaGemm(const ConvProblem& p, const MmaGemmPlan& plan, const DeviceProfile& device)
      : plan_(plan), groups_(static_cast<unsigned>(p.groups)), kernel_(kernel_for(p, plan.tile)), call_(p) {
    kernel_.shared_bytes = shared_bytes_for(kernel_.shared_bytes, plan.resident, device);
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.steps = narrow(plan.steps);
    call_.steps_per_split = narrow(plan.steps_per_split);
    call_.tiles_n = narrow(plan.tiles_n);
    call_.split_k = narrow(plan.split_k);
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.pq = narrow(p.p * p.q);
    call_.group_c = narrow(p.group_c());
    call_.group_k = narrow(p.group_k());
    call_.filter_pitch = narrow(mma_filter_pitch(p));
    call_.window_h = narrow(p.r * p.dilation_h);
    call_.window_w = narrow(p.s * p.dilation_w);
    call_.x_image = p.c * p.h * p.w;
    call_.store_vectors = p.group_k() * static_cast<std::int64_t>(dtype_bytes(p.storage)) % 16 == 0;
  }

  void run(const KernelRun& run) const override {
    MmaGemm call = call_;
    call.x = run.in<void>(ConvOp::input);
    call.w = run.blob;
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(call.k, run));
    allow_shared_bytes(kernel_.kernel, kernel_.shared_bytes);
    const auto split_k = static_cast<unsigned>(plan_.split_k);
    launch_clusters(
        *run.cuda, kernel_.kernel, dim3(static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n), split_k, groups_),
        static_cast<unsigned>(shape_of(plan_.tile).threads()), dim3(1, split_k), kernel_.shared_bytes, call);
  }

 private:
  MmaGemmPlan plan_;
  unsigned groups_;
  TileKernel kernel_;
  MmaGemm call_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_mma_gemm(const ConvProblem& p, const MmaGemmPlan& plan,
                                                 const DeviceProfile& device) {
  return std::make_unique<BoundMmaGemm>(p, plan, device);
}

}  // namespace lenslet::cuda
