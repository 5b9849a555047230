// wgmma_tf32: refusals and bounds. Launch: wgmma_tf32.cu.

#include <algorithm>
#include <string_view>

#include "base/aligned_format.h"
#include "base/cuda/has_wgmma.h"
#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/conv/cuda/wgmma_tf32_split_k.h"
#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

class WgmmaTf32Conv final : public WgmmaConv {
 public:
  std::string_view name() const override { return "wgmma_tf32"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (!has_wgmma(target.device) || !target.device.clusters) return wgmma_refusal;
    if (wgmma_tf32_tilings(p).empty()) return wgmma_sets_refusal;
    std::size_t shared_bytes = 0;
    for (const WgmmaTileShape& shape : wgmma_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(tf32_shared_of(shape, p.residual).total));
    for (const SplitKTileShape& shape : split_k_tiles)
      shared_bytes = std::max(shared_bytes, static_cast<std::size_t>(shared_of(shape).total));
    if (auto reason = target.device.refuse_shared(shared_bytes)) return reason;
    return refuse_wgmma_sizes(p, 64);
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_wgmma_tf32(p), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    return candidates_of(
        wgmma_tf32_tilings(p), [&](const auto& tiling) { return wgmma_tf32_us(p, tiling, reference_gpu()); },
        [&](const auto& tiling) { return candidate_of(p, tiling, target); });
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const WgmmaTf32Plan& tiling, const Target& target) {
    const std::int64_t gemm_k = p.group_c() * p.r * p.s;
    return {.format = aligned_nhwc(p.k, p.storage),
            .x_format = aligned_nhwc(p.c, p.x_storage),
            .pitched = true,
            .config = tiling.str(),
            .estimated_us = wgmma_tf32_us(p, tiling, target.device),
            .tolerance = tf32_sum_tolerance(gemm_k) + sum_tolerance(gemm_k)};
  }

  WgmmaFilters filters_of(const ConvProblem& p, std::string_view config) const override {
    const WgmmaTf32Plan plan = read_wgmma_tf32_plan(p, config);
    return in_whole_tiles(p, plan.together, plan.n());
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    const WgmmaTf32Plan plan = read_wgmma_tf32_plan(p, config);
    if constexpr (cuda_built)
      return plan.split_k > 0 ? bind_wgmma_tf32_split_k(p, plan) : bind_wgmma_tf32(p, plan);
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_wgmma_tf32() {
  static const WgmmaTf32Conv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
