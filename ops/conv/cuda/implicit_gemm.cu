// implicit_gemm: convolution as one GEMM per group; its A operand, the windows, is gathered from the input in the main
// loop. fp32 on FFMA. Kernel: implicit_gemm.cuh; tiles and split-K: implicit_gemm_plan.cpp; refusals and filters:
// implicit_gemm.cpp.

#include "ops/conv/cuda/implicit_gemm.cuh"

#include "ops/conv/cuda/reduce_split_k.h"

namespace lenslet::cuda {
namespace {

struct TileKernel {
  void (*kernel)(ImplicitGemm);
  std::size_t shared_bytes;
};
template <GemmAccess access>
TileKernel kernel_for(GemmTile tile) {
  TileKernel found{};
  GemmTilesFor<access>::with(tile, [&]<GemmTile known>() {
    using Tile = TileTraits<known>;
    found = {implicit_gemm_kernel<Tile, access>, implicit_gemm_shared_bytes<Tile>()};
  });
  return found;
}

TileKernel kernel_for(GemmTile tile, GemmAccess access) {
  if (access == GemmAccess::nhwc_vectors) return kernel_for<GemmAccess::nhwc_vectors>(tile);
  if (access == GemmAccess::nhwc_scalars) return kernel_for<GemmAccess::nhwc_scalars>(tile);
  return kernel_for<GemmAccess::nchw>(tile);
}

class BoundImplicitGemm final : public BoundConv {
 public:
  BoundImplicitGemm(const ConvProblem& p, const Format& format, const ImplicitGemmPlan& plan,
                    const DeviceProfile& device)
      : BoundConv(p, plan.workspace_bytes),
        plan_(plan),
        kernel_(kernel_for(plan.tile, gemm_access(p, format))),
        call_(p) {
    kernel_.shared_bytes = shared_bytes_for(kernel_.shared_bytes, plan.resident, device);
    const bool nhwc = format == formats::nhwc;
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.gemm_k = narrow(p.r * p.s * p.group_c());
    call_.steps_per_split = narrow(plan.steps_per_split);
    call_.tiles_n = narrow(plan.tiles_n);
    call_.cluster = narrow(plan.cluster);
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.pq = narrow(p.p * p.q);
    call_.group_c = narrow(p.group_c());
    call_.group_k = narrow(p.group_k());
    call_.filter_pitch = narrow(implicit_gemm_filter_pitch(p));
    call_.window_h = narrow(p.r * p.dilation_h);
    call_.window_w = narrow(p.s * p.dilation_w);
    call_.x_c = narrow(nhwc ? 1 : p.h * p.w);
    call_.x_h = narrow(nhwc ? p.w * p.c : p.w);
    call_.x_w = narrow(nhwc ? p.c : 1);
    call_.x_image = p.c * p.h * p.w;
    call_.elems = p.n * p.k * p.p * p.q;
    call_.store_vectors = nhwc && p.group_k() % 4 == 0;
    sum_ = {.elems = call_.elems,
            .plane = nhwc ? 1 : static_cast<unsigned>(call_.pq),
            .k = static_cast<unsigned>(p.k),
            .split_k = narrow(plan.split_k),
            .activation = call_.activation};
  }

 private:
  void compute(const ConvRun& run) const override {
    // A cluster reduces its split-K parts through shared memory; otherwise a second kernel does.
    const bool second = plan_.split_k > 1 && plan_.cluster == 1;
    ImplicitGemm call = call_;
    call.point_at(run);
    call.await_filters = run.filter_made_now;
    if (second) call.partial = reinterpret_cast<float*>(run.workspace.data());
    allow_shared_bytes(kernel_.kernel, kernel_.shared_bytes);
    const dim3 grid(static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n), static_cast<unsigned>(plan_.split_k),
                    static_cast<unsigned>(problem.groups));
    launch_clusters(*run.cuda, kernel_.kernel, grid, static_cast<unsigned>(shape_of(plan_.tile).threads),
                    dim3(1, static_cast<unsigned>(plan_.cluster)), kernel_.shared_bytes, call);
    if (!second) return;
    SplitKReduction sum = sum_;
    sum.partial = call.partial;
    sum.bias = run.bias<float>();
    sum.residual = run.residual<float>();
    sum.y = run.y<float>();
    sum.y_gap = static_cast<unsigned>(run.y_pixel - problem.k);
    reduce_split_k(*run.cuda, sum);
  }

  ImplicitGemmPlan plan_;
  TileKernel kernel_;
  ImplicitGemm call_;
  SplitKReduction sum_;
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_implicit_gemm(const ConvProblem& p, const Format& format,
                                                      const ImplicitGemmPlan& plan, const DeviceProfile& device) {
  return std::make_unique<BoundImplicitGemm>(p, format, plan, device);
}

}  // namespace lenslet::cuda
