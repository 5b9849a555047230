// wgmma_halo: refusals, bounds, and split-K or not. Launches: wgmma_halo.cu, wgmma_halo_split_k.cu.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_halo_plan.h"
#include "ops/conv/cuda/wgmma_halo_split_k.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

bool is_tf32(const ConvProblem& p) { return p.storage == DType::f32; }

class WgmmaHaloConv final : public WgmmaConv {
 public:
  std::string_view name() const override { return "wgmma_halo"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16, float>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (is_tf32(p) && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    if (auto reason = refuse_tma_sizes(p, 28, UnitShape().units(p), ceil_div(p.k, 32))) return reason;
    if (p.groups > 1 && std::max(p.n * p.h * p.w * p.c, p.n * p.p * p.q * p.k) > 1 << 28)
      return "several groups, and a tensor of more than 2^28 elements";
    if (auto reason = refuse_wgmma_halo(p)) return reason;
    return target.device.refuse_shared(static_cast<std::size_t>(plan_wgmma_halo(p).total));
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    const auto [config, us] = tiling_of(p, target.device);
    return candidate_of(p, config, us);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    std::vector<std::pair<double, ConvCandidate>> tilings;  // with the estimates on the reference GPU
    for (const WgmmaHaloPlan& tiling : wgmma_halo_tilings(p))
      tilings.emplace_back(wgmma_halo_us(p, tiling, reference_gpu()),
                           candidate_of(p, tiling.str(), wgmma_halo_us(p, tiling, target.device)));
    for (const HaloSplitKPlan& tiling : halo_split_k_tilings(p))
      tilings.emplace_back(halo_split_k_us(p, tiling, reference_gpu()),
                           candidate_of(p, tiling.str(), halo_split_k_us(p, tiling, target.device)));
    return candidates_of(
        tilings, [](const auto& tiling) { return tiling.first; }, [](const auto& tiling) { return tiling.second; });
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const std::string& config, double us) {
    const std::int64_t gemm_k = p.group_c() * p.r * p.s;
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.storage),
            .pitched = true,
            .config = config,
            .estimated_us = us,
            .tolerance =
                is_tf32(p) ? tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k) : half_sum_tolerance(p.storage, gemm_k),
            // Split-K does: one tile a block, few pixels.
            .waits_for_weights = is_halo_split_k(config)};
  }

  /// Persistent blocks or split-K, by the estimates on the reference GPU; and the time on this one.
  static std::pair<std::string, double> tiling_of(const ConvProblem& p, const DeviceProfile& device) {
    const WgmmaHaloPlan tiling = plan_wgmma_halo(p);
    const std::optional<HaloSplitKPlan> split_k = plan_halo_split_k(p);
    const DeviceProfile& reference = reference_gpu();
    if (split_k && halo_split_k_us(p, *split_k, reference) < wgmma_halo_us(p, tiling, reference))
      return {split_k->str(), halo_split_k_us(p, *split_k, device)};
    return {tiling.str(), wgmma_halo_us(p, tiling, device)};
  }

  WgmmaFilters filters_of(const ConvProblem& p, std::string_view config) const override {
    return is_halo_split_k(config) ? halo_filters(p, 1) : halo_filters(p, read_wgmma_halo_plan(p, config).together);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    if (is_halo_split_k(config)) {
      const HaloSplitKPlan split_k = read_halo_split_k_plan(p, config);
      if constexpr (cuda_built)
        return bind_halo_split_k(p, split_k);
      else
        return not_built();
    }
    const WgmmaHaloPlan plan = read_wgmma_halo_plan(p, config);
    if constexpr (cuda_built)
      return bind_wgmma_halo(p, plan);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_wgmma_halo() {
  static const WgmmaHaloConv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
