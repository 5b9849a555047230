// implicit_gemm: convolution as one GEMM per group; its A operand, the windows, is gathered from the input in the main
// loop. fp32 on FFMA. Kernel: implicit_gemm.cuh; tiles and split-K: implicit_gemm_plan.cpp.

#include "ops/conv/cuda/implicit_gemm.cuh"

#include "ops/conv/cuda/sum_slices.h"
#include "ops/core/sum_tolerance.h"
#include "ops/movement/fill_cuda.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet::cuda {
namespace {

/// Row pitch of the packed filters, [groups][R*S*C/groups][K/groups rounded up]: 16-byte copies need multiples of 4.
std::int64_t filter_pitch(const ConvProblem& p) { return (p.group_k() + 3) / 4 * 4; }

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
  /// plan.cluster 1: launched without clusters.
  BoundImplicitGemm(const ConvProblem& p, const Format& format, const ImplicitGemmPlan& plan,
                    const DeviceProfile& device)
      : BoundConv(p, plan.workspace_bytes),
        plan_(plan),
        kernel_(kernel_for(plan.tile, gemm_access(p, format))),
        call_(p) {
    kernel_.shared_bytes = shared_bytes_for(kernel_.shared_bytes, plan.resident, device);
    const bool nhwc = format == formats::nhwc;
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.terms = narrow(p.r * p.s * p.group_c());
    call_.steps_a_slice = narrow(plan.steps_a_slice);
    call_.tiles_n = narrow(plan.tiles_n);
    call_.cluster = narrow(plan.cluster);
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.pq = narrow(p.p * p.q);
    call_.group_c = narrow(p.group_c());
    call_.group_k = narrow(p.group_k());
    call_.filter_pitch = narrow(filter_pitch(p));
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
            .slices = narrow(plan.slices),
            .activation = call_.activation};
  }

 private:
  void compute(const ConvRun& run) const override {
    // A cluster reduces its split-K parts through shared memory; otherwise a second kernel does.
    const bool second = plan_.slices > 1 && plan_.cluster == 1;
    ImplicitGemm call = call_;
    call.point_at(run);
    call.await_filters = run.filter_made_now;
    if (second) call.partial = reinterpret_cast<float*>(run.workspace.data());
    allow_shared_bytes(kernel_.kernel, kernel_.shared_bytes);
    const dim3 grid(static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n), static_cast<unsigned>(plan_.slices),
                    static_cast<unsigned>(problem.groups));
    launch_clusters(*run.cuda, kernel_.kernel, grid, static_cast<unsigned>(shape_of(plan_.tile).threads),
                    dim3(1, static_cast<unsigned>(plan_.cluster)), kernel_.shared_bytes, call);
    if (!second) return;
    SumSlices sum = sum_;
    sum.partial = call.partial;
    sum.bias = run.bias;
    sum.residual = run.residual;
    sum.y = run.y;
    sum.y_gap = static_cast<unsigned>(run.y_pixel - problem.k);
    sum_slices(*run.cuda, sum);
  }

  ImplicitGemmPlan plan_;
  TileKernel kernel_;
  ImplicitGemm call_;
  SumSlices sum_;
};

class ImplicitGemmConv final : public ConvAlgorithm {
 public:
  explicit ImplicitGemmConv(const Format& format) : format_(format) {}
  std::string_view name() const override { return format_ == formats::nhwc ? "implicit_gemm" : "implicit_gemm_nchw"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (auto reason = target.device.refuse_shared(implicit_gemm_shared_bytes<LargestTile>())) return reason;
    if (p.groups > 1 && (p.group_c() < 4 || p.group_k() < 4))
      return "a group of less than four channels or filters leaves tiles empty";
    if (p.groups > 65535) return "more than 65535 groups";
    // The kernel uses 32-bit indices within an image, a window, and over output pixels.
    constexpr std::int64_t limit = 1 << 30;
    const std::int64_t window_h = (p.r + gemm_step) * p.dilation_h, window_w = (p.s + gemm_step) * p.dilation_w;
    if (p.c > limit / p.h / p.w || p.k > limit / p.p / p.q || window_h > limit / p.w / p.c || window_w > limit / p.c)
      return "an image or a window has more than 2^30 elements";
    if (p.h + p.pad_top + p.pad_bottom > limit || p.w + p.pad_left + p.pad_right > limit)
      return "a padded image has more than 2^30 lines or columns";
    if (p.n > limit / p.p / p.q) return "more than 2^30 output pixels";
    if (p.group_c() > limit / p.r / p.s / filter_pitch(p)) return "more than 2^30 weights in a group";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const GemmAccess access = gemm_access(p, format_);
    ImplicitGemmPlan cut = plan_implicit_gemm(p, access);
    const double us = gemm_plan_us(p, access, cut, target.device);
    // Shorter products lose by the limit (MobileNetV2 at batch 1: 266 us for 253). The shortest that gains takes 9.4 us
    // (2048x7x7 -> 512, 1x1, H200).
    constexpr double least_held_us = 9;
    if (us >= least_held_us) cut.resident = even_resident(p, cut, target.device);
    // Single floats of one or two channels rarely coalesce (H100, 26 November 2026: 23 drawn problems).
    const double scattered = access == GemmAccess::nhwc_scalars && p.group_c() <= 2 ? 1.2 : 1;
    return {.format = format_,
            .pitched = true,
            .config = cut.str(),
            .estimated_us = scattered * us,
            .tolerance = sum_tolerance(p.group_c() * p.r * p.s)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.floats = p.groups * p.r * p.s * p.group_c() * filter_pitch(p)};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter, std::span<float> to) const override {
    const std::int64_t taps = p.r * p.s, c = p.group_c(), k = p.group_k(), pitch = filter_pitch(p);
    std::fill(to.begin(), to.end(), 0.0F);
    for (std::int64_t out = 0; out < p.k; ++out) {
      float* const column = to.data() + out / k * filter.terms * pitch + out % k;
      for (std::int64_t in = 0; in < c; ++in)
        for (std::int64_t tap = 0; tap < taps; ++tap)
          column[(tap * c + in) * pitch] = filter.weight(out, in * taps + tap);
    }
  }
  ComputedFilters computed_filters() const override { return ComputedFilters::packed; }
  void pack(const ConvProblem& p, const ConvRun& run, std::span<float> to, float*) const override {
    const std::int64_t taps = p.r * p.s, c = p.group_c(), k = p.group_k(), pitch = filter_pitch(p);
    if (pitch != k) fill(*run.cuda, sizeof(float), static_cast<std::int64_t>(to.size()), 0, to.data());
    StridedLoops loops;
    loops.add(p.groups, k * c * taps, taps * c * pitch);
    loops.add(taps, 1, c * pitch);
    loops.add(c, taps, pitch);
    loops.add(k, c * taps, 1);
    strided_copy(*run.cuda, sizeof(float), loops, run.filter, to.data());
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    ImplicitGemmPlan plan = read_implicit_gemm_plan(p, gemm_access(p, format_), config);
    if (!device.clusters) plan.cluster = 1;  // sum_slices() adds in the same order
    return std::make_unique<BoundImplicitGemm>(p, format_, plan, device);
  }

  Format format_;
};

}  // namespace

const Kernel& conv_implicit_gemm() {
  static const ImplicitGemmConv algorithm(formats::nhwc);
  return algorithm;
}

const Kernel& conv_implicit_gemm_nchw() {
  static const ImplicitGemmConv algorithm(formats::nchw);
  return algorithm;
}

}  // namespace lenslet::cuda
