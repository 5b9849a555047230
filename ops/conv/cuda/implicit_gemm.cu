// implicit_gemm: the convolution as one tiled matrix product per group whose left side, the windows, is fetched from
// the input while multiplying. fp32 on FFMA. The kernel is in implicit_gemm.cuh, tiles and slices are chosen in
// implicit_gemm_plan.cpp.

#include "ops/conv/cuda/implicit_gemm.cuh"

#include <algorithm>

#include "lenslet/error.h"
#include "ops/conv/cpu/packed_filter.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/device_filter.h"
#include "ops/conv/cuda/implicit_gemm.h"
#include "ops/conv/cuda/layout_cost.h"
#include "ops/conv/cuda/sum_slices.h"

namespace lenslet::cuda {
namespace {

/// Filters of a row in the prepared form, [groups][R*S*C/groups][K/groups rounded up]: 16-byte copies need fours.
std::int64_t filter_pitch(const ConvProblem& p) { return (p.group_k() + 3) / 4 * 4; }

template <typename Tile, GemmAccess access>
void launch_tile(const Context& context, const ImplicitGemm& arguments, const ImplicitGemmPlan& plan,
                 std::int64_t groups) {
  constexpr std::size_t shared_bytes = implicit_gemm_shared_bytes<Tile>();
  allow_shared_bytes(implicit_gemm_kernel<Tile, access>, shared_bytes);
  const auto cluster = static_cast<unsigned>(arguments.cluster);
  const dim3 grid(static_cast<unsigned>(plan.tiles_m * plan.tiles_n), blocks_for(plan.slices, cluster) * cluster,
                  static_cast<unsigned>(groups));
  launch_clusters(context, implicit_gemm_kernel<Tile, access>, grid, Tile::threads, dim3(1, cluster), shared_bytes,
                  arguments);
}

/// The kernels there are; gemm_tiles_for() lists the same.
template <GemmAccess access>
void launch_plan(const Context& context, const ImplicitGemm& arguments, const ImplicitGemmPlan& plan,
                 std::int64_t groups) {
  constexpr bool vectors = access == GemmAccess::nhwc_vectors, nchw = access == GemmAccess::nchw;
  switch (plan.tile) {
    case GemmTile::t128x128:
      if constexpr (vectors || nchw)
        return launch_tile<TileTraits<GemmTile::t128x128, 8, 8>, access>(context, arguments, plan, groups);
      break;
    case GemmTile::t128x64:
      return launch_tile<TileTraits<GemmTile::t128x64, 8, 8>, access>(context, arguments, plan, groups);
    case GemmTile::t64x64:
      return launch_tile<TileTraits<GemmTile::t64x64, 4, 8>, access>(context, arguments, plan, groups);
    case GemmTile::t64x32:
      if constexpr (!nchw)
        return launch_tile<TileTraits<GemmTile::t64x32, 4, 8>, access>(context, arguments, plan, groups);
      break;
    case GemmTile::t32x64:
      if constexpr (vectors)
        return launch_tile<TileTraits<GemmTile::t32x64, 4, 8>, access>(context, arguments, plan, groups);
      break;
  }
  throw Error(ErrorKind::internal, "implicit_gemm: there is no kernel for the planned tile");
}

}  // namespace

void run_implicit_gemm(const ConvRun& run, Format layout, const ImplicitGemmPlan& plan) {
  const ConvProblem& p = run.problem;
  const bool nhwc = layout == formats::nhwc;
  // Clusters add up slices without a trip to memory. Without them sum_slices() adds in the same order.
  const std::int64_t cluster = run.cuda->clusters ? plan.cluster : 1;
  const std::int64_t partials = (plan.slices + cluster - 1) / cluster;
  auto* const partial = partials > 1 ? reinterpret_cast<float*>(run.workspace.data()) : nullptr;
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const auto aligned = [](const float* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  const ImplicitGemm arguments{.x = run.x,
                               .filters = static_cast<const DeviceFilter&>(*run.filter).w.data(),
                               .bias = run.bias,
                               .residual = run.residual,
                               .y = run.y,
                               .partial = partial,
                               .terms = narrow(p.r * p.s * p.group_c()),
                               .steps_a_slice = narrow(plan.steps_a_slice),
                               .tiles_n = narrow(plan.tiles_n),
                               .cluster = narrow(cluster),
                               .pixels = narrow(p.n * p.p * p.q),
                               .group_c = narrow(p.group_c()),
                               .group_k = narrow(p.group_k()),
                               .filter_pitch = narrow(filter_pitch(p)),
                               .h = narrow(p.h),
                               .w = narrow(p.w),
                               .q = narrow(p.q),
                               .pq = narrow(p.p * p.q),
                               .s = narrow(p.s),
                               .stride_h = narrow(p.stride_h),
                               .stride_w = narrow(p.stride_w),
                               .pad_top = narrow(p.pad_top),
                               .pad_left = narrow(p.pad_left),
                               .dilation_h = narrow(p.dilation_h),
                               .dilation_w = narrow(p.dilation_w),
                               .window_h = narrow(p.r * p.dilation_h),
                               .window_w = narrow(p.s * p.dilation_w),
                               .x_c = narrow(nhwc ? 1 : p.h * p.w),
                               .x_h = narrow(nhwc ? p.w * p.c : p.w),
                               .x_w = narrow(nhwc ? p.c : 1),
                               .x_image = p.c * p.h * p.w,
                               .k = narrow(p.k),
                               .elems = p.n * p.k * p.p * p.q,
                               .store_vectors = nhwc && p.group_k() % 4 == 0 && aligned(run.y) && aligned(run.residual),
                               .activation = DeviceActivation(p.activation)};
  switch (gemm_access(p, layout)) {
    case GemmAccess::nhwc_vectors:
      launch_plan<GemmAccess::nhwc_vectors>(*run.cuda, arguments, plan, p.groups);
      break;
    case GemmAccess::nhwc_scalars:
      launch_plan<GemmAccess::nhwc_scalars>(*run.cuda, arguments, plan, p.groups);
      break;
    case GemmAccess::nchw:
      launch_plan<GemmAccess::nchw>(*run.cuda, arguments, plan, p.groups);
      break;
  }
  if (partials > 1)
    sum_slices(*run.cuda, {.partial = partial,
                           .slices = narrow(partials),
                           .adjacent = narrow(plan.cluster / cluster),
                           .elems = arguments.elems,
                           .plane = nhwc ? 1 : p.p * p.q,
                           .k = p.k,
                           .bias = run.bias,
                           .residual = run.residual,
                           .y = run.y,
                           .activation = p.activation});
}

namespace {

class ImplicitGemmConv final : public ConvAlgorithm {
 public:
  explicit ImplicitGemmConv(Format layout) : layout_(layout) {}
  std::string_view name() const override { return layout_ == formats::nhwc ? "implicit_gemm" : "implicit_gemm_nchw"; }
  Format format() const override { return layout_; }

  std::optional<std::string> refuse(const ConvProblem& p) const override {
    if (p.groups > 1 && (p.group_c() < 4 || p.group_k() < 4))
      return "a group of less than four channels or filters leaves tiles empty";
    if (p.groups > 65535) return "more than 65535 groups";
    // The kernel counts in 32 bits within an image, a window and the pixels of the output.
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

  /// One sum of fp32 products, in whatever order, as on the CPU.
  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    const double us = gemm_plan_us(p, access(p), plan(p), rates);
    return layout_ == formats::nhwc ? us : us + nchw_conversions_us(p, rates);
  }

  std::size_t workspace_bytes(const ConvProblem& p, int) const override { return plan(p).workspace_bytes; }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& p, const ConvFilter& filter) const override {
    const auto taps = static_cast<std::size_t>(p.r * p.s), c = static_cast<std::size_t>(p.group_c());
    const auto k = static_cast<std::size_t>(p.group_k()), pitch = static_cast<std::size_t>(filter_pitch(p));
    const std::size_t terms = taps * c;
    std::vector<float> rows(static_cast<std::size_t>(p.groups) * terms * pitch);
    for (std::size_t out = 0; out < static_cast<std::size_t>(p.k); ++out) {
      float* const column = rows.data() + out / k * terms * pitch + out % k;
      for (std::size_t in = 0; in < c; ++in)
        for (std::size_t tap = 0; tap < taps; ++tap)
          column[(tap * c + in) * pitch] = scaled_weight(filter, out, in * taps + tap, terms);
    }
    return std::make_unique<DeviceFilter>(rows);
  }

  void run(const ConvRun& run) const override { run_implicit_gemm(run, layout_, plan(run.problem)); }

 private:
  GemmAccess access(const ConvProblem& p) const { return gemm_access(p, layout_); }
  ImplicitGemmPlan plan(const ConvProblem& p) const { return plan_implicit_gemm(p, access(p)); }

  Format layout_;
};

}  // namespace

const ConvAlgorithm& conv_implicit_gemm() {
  static const ImplicitGemmConv algorithm(formats::nhwc);
  return algorithm;
}

const ConvAlgorithm& conv_implicit_gemm_nchw() {
  static const ImplicitGemmConv algorithm(formats::nchw);
  return algorithm;
}

}  // namespace lenslet::cuda
