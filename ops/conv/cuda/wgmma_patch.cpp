// wgmma_patch: refusals, bounds, and split-K or not. Launches: wgmma_patch.cu, wgmma_patch_slices.cu.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_patch_plan.h"
#include "ops/conv/cuda/wgmma_patch_slices.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

bool is_tf32(const ConvProblem& p) { return p.storage == DType::f32; }

class WgmmaPatchConv final : public WgmmaConv {
 public:
  std::string_view name() const override { return "wgmma_patch"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16, float>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (is_tf32(p) && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    // The kernel has 32-bit unit indices, tensor maps 32-bit coordinates.
    constexpr std::int64_t limit = 1 << 28;
    if (p.n > limit / p.p / p.q || p.n > limit / p.h / p.w) return "more than 2^28 pixels";
    if (p.c > limit / p.h / p.w || p.k > limit / p.r / p.s || p.c > limit / p.r / p.s)
      return "an image or the filters have more than 2^28 elements";
    if (UnitShape().units(p) > limit / ((p.k + 31) / 32)) return "more than 2^28 tiles";
    if (p.groups > 1 && std::max(p.n * p.h * p.w * p.c, p.n * p.p * p.q * p.k) > limit)
      return "several groups, and a tensor of more than 2^28 elements";
    if (auto reason = refuse_wgmma_patch(p)) return reason;
    return target.device.refuse_shared(static_cast<std::size_t>(plan_wgmma_patch(p).total));
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const auto [config, us] = cut_of(p, target.device);
    const std::int64_t terms = p.group_c() * p.r * p.s;
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.storage),
            .pitched = true,
            .config = config,
            .estimated_us = us,
            .tolerance =
                is_tf32(p) ? tf32_sum_tolerance(terms) + sum_tolerance(terms) : half_sum_tolerance(p.storage, terms),
            // Split-K does: one tile a block, few pixels.
            .waits_for_weights = is_patch_slices(config)};
  }

  /// Persistent blocks or split-K, by the estimates on the reference GPU; and the time on this one.
  static std::pair<std::string, double> cut_of(const ConvProblem& p, const DeviceProfile& device) {
    const WgmmaPatchPlan cut = plan_wgmma_patch(p);
    const std::optional<PatchSlicesPlan> slices = plan_patch_slices(p);
    const DeviceProfile& reference = reference_gpu();
    if (slices && patch_slices_us(p, *slices, reference) < wgmma_patch_us(p, cut, reference))
      return {slices->str(), patch_slices_us(p, *slices, device)};
    return {cut.str(), wgmma_patch_us(p, cut, device)};
  }

  WgmmaFilters filters_of(const ConvProblem& p, std::string_view config) const override {
    return is_patch_slices(config) ? patch_filters(p, 1) : patch_filters(p, read_wgmma_patch_plan(p, config).together);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    if (is_patch_slices(config)) {
      const PatchSlicesPlan slices = read_patch_slices_plan(p, config);
      if constexpr (cuda_built)
        return bind_patch_slices(p, slices);
      else
        return not_built();
    }
    const WgmmaPatchPlan plan = read_wgmma_patch_plan(p, config);
    if constexpr (cuda_built)
      return bind_wgmma_patch(p, plan);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_wgmma_patch() {
  static const WgmmaPatchConv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
