// implicit_gemm, implicit_gemm_nchw: refusals and filters. Launches and kernel: implicit_gemm.cu.

#include <algorithm>

#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"
#include "ops/movement/fill_cuda.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet::cuda {
namespace {

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
    if (auto reason = refuse_gathered_sizes(p, gemm_step)) return reason;
    if (p.group_c() > (1 << 30) / p.r / p.s / implicit_gemm_filter_pitch(p)) return "more than 2^30 weights in a group";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_implicit_gemm(p, gemm_access(p, format_)), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    const GemmAccess access = gemm_access(p, format_);
    return candidates_of(
        implicit_gemm_tilings(p, access),
        [&](const auto& tiling) { return gemm_plan_us(p, access, tiling, reference_gpu()); },
        [&](const auto& tiling) { return candidate_of(p, tiling, target); });
  }

  ConvCandidate candidate_of(const ConvProblem& p, ImplicitGemmPlan tiling, const Target& target) const {
    const GemmAccess access = gemm_access(p, format_);
    const double us = gemm_plan_us(p, access, tiling, target.device);
    // Shorter products lose by the limit (MobileNetV2 at batch 1: 266 us for 253). The shortest that gains takes 9.4 us
    // (2048x7x7 -> 512, 1x1, H200).
    constexpr double least_held_us = 9;
    if (us >= least_held_us) tiling.resident = even_resident(p, tiling, target.device);
    // Single floats of one or two channels rarely coalesce (H100, 26 November 2026: 23 drawn problems).
    const double scattered = access == GemmAccess::nhwc_scalars && p.group_c() <= 2 ? 1.2 : 1;
    return {.format = format_,
            .pitched = true,
            .config = tiling.str(),
            .estimated_us = scattered * us,
            .tolerance = sum_tolerance(p.group_c() * p.r * p.s)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.groups * p.r * p.s * p.group_c() * implicit_gemm_filter_pitch(p)};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> to = as_floats(bytes);
    const std::int64_t taps = p.r * p.s, c = p.group_c(), k = p.group_k(), pitch = implicit_gemm_filter_pitch(p);
    std::fill(to.begin(), to.end(), 0.0F);
    for (std::int64_t out = 0; out < p.k; ++out) {
      float* const column = to.data() + out / k * filter.gemm_k * pitch + out % k;
      for (std::int64_t in = 0; in < c; ++in)
        for (std::int64_t tap = 0; tap < taps; ++tap)
          column[(tap * c + in) * pitch] = filter.weight(out, in * taps + tap);
    }
  }
  ComputedFilters computed_filters() const override { return ComputedFilters::packed; }
  void pack(const ConvProblem& p, const ConvRun& run, std::span<std::byte> bytes, std::byte*) const override {
    if constexpr (cuda_built) {
      const std::span<float> to = as_floats(bytes);
      const std::int64_t taps = p.r * p.s, c = p.group_c(), k = p.group_k(), pitch = implicit_gemm_filter_pitch(p);
      if (pitch != k) fill(*run.cuda, sizeof(float), static_cast<std::int64_t>(to.size()), 0, to.data());
      StridedLoops loops;
      loops.add(p.groups, k * c * taps, taps * c * pitch);
      loops.add(taps, 1, c * pitch);
      loops.add(c, taps, pitch);
      loops.add(k, c * taps, 1);
      strided_copy(*run.cuda, sizeof(float), loops, run.filter<float>(), to.data());
    }
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    ImplicitGemmPlan plan = read_implicit_gemm_plan(p, gemm_access(p, format_), config);
    if (!device.clusters) plan.cluster = 1;  // reduce_split_k() adds in the same order
    if constexpr (cuda_built)
      return bind_implicit_gemm(p, format_, plan, device);
    else
      return not_built(plan.workspace_bytes);
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
