// wgmma_gemm: refusals and bounds. Launch: wgmma_gemm.cu.

#include <algorithm>
#include <string_view>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_split_k.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

class WgmmaGemmConv final : public WgmmaConv {
 public:
  std::string_view name() const override { return "wgmma_gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<Float16, BFloat16>>; }

 private:
  /// Of problems with up to 4 channels: TMA loads less than the plan's groups of 16 (H100, 26 November 2026: 18 drawn
  /// problems take 0.7 of the estimate).
  static constexpr double few_channels_factor = 0.72;

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    if (wgmma_tilings(p).empty()) return wgmma_sets_refusal;
    std::size_t shared_bytes = 0;
    for (const WgmmaTileShape& shape : wgmma_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(shared_of(shape, p.residual).total));
    for (const SplitKTileShape& shape : split_k_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(shared_of(shape).total));
    if (auto reason = target.device.refuse_shared(shared_bytes)) return reason;
    return refuse_wgmma_sizes(p, 32);
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_wgmma_gemm(p), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    return candidates_of(
        wgmma_tilings(p), [&](const auto& tiling) { return wgmma_plan_us(p, tiling, reference_gpu()); },
        [&](const auto& tiling) { return candidate_of(p, tiling, target); });
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const WgmmaGemmPlan& tiling, const Target& target) {
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.x_storage),
            .pitched = true,
            .config = tiling.str(),
            .estimated_us = (p.c <= 4 ? few_channels_factor : 1) * wgmma_plan_us(p, tiling, target.device),
            .tolerance = half_sum_tolerance(p.storage, p.group_c() * p.r * p.s)};
  }

  WgmmaFilters filters_of(const ConvProblem& p, std::string_view config) const override {
    const WgmmaGemmPlan plan = read_wgmma_gemm_plan(p, config);
    return in_whole_tiles(p, plan.together, plan.n());
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    const WgmmaGemmPlan plan = read_wgmma_gemm_plan(p, config);
    if constexpr (cuda_built)
      return plan.split_k > 0 ? bind_wgmma_split_k(p, plan) : bind_wgmma_gemm(p, plan);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_wgmma_gemm() {
  static const WgmmaGemmConv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
