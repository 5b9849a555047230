// winograd_*: refusals and filters. Launches: winograd.cu.

#include <algorithm>

#include "ops/conv/cuda/winograd_plan.h"
#include "ops/conv/winograd_filter.h"
#include "ops/core/not_built.h"

namespace lenslet::cuda {
namespace {

template <int M, int R>
class Winograd final : public ConvAlgorithm {
 public:
  std::string_view name() const override {
    if (R == 3) return M == 2 ? "winograd_f2" : "winograd_f4";
    if (R == 5) return M == 2 ? "winograd_f2_5x5" : "winograd_f4_5x5";
    return "winograd_f2_7x7";
  }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (auto reason = refuse_winograd(p, M, R)) return reason;
    return target.device.refuse_shared(LargestTile::shared_bytes);
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_winograd(p, M, target.device), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    return candidates_of(
        winograd_tilings(p, M), [&](const auto& tiling) { return estimate_winograd_us(p, tiling, target.device); },
        [&](const auto& tiling) { return candidate_of(p, tiling, target); });
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const WinogradPlan& tiling, const Target& target) {
    return {.pitched = true,
            .config = tiling.str(),
            .estimated_us = estimate_winograd_us(p, tiling, target.device),
            .tolerance = winograd_tolerance(M, R, p.c)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    return {.elements = static_cast<std::int64_t>(read_winograd_plan(p, M, config).u_floats())};
  }
  /// U = G g G^T in double, rounded once.
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> u = as_floats(bytes);
    const WinogradPlan plan = read_winograd_plan(p, M, config);
    constexpr std::size_t alpha = M + R - 1;
    std::fill(u.begin(), u.end(), 0.0F);
    for (std::int64_t c = 0; c < p.c; ++c)
      for (std::int64_t k = 0; k < p.k; ++k) {
        float* to = u.data() + c * plan.k + k;
        for (std::size_t i = 0; i < alpha; ++i) {
          const auto line = winograd_filter_row<M, R>(i, filter.elements<float>() + (k * p.c + c) * R * R);
          for (std::size_t j = 0; j < alpha; ++j, to += std::int64_t{plan.c} * plan.k)
            *to = static_cast<float>(filter.factor(k) * winograd_filter_element<M>(j, line));
        }
      }
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    const WinogradPlan plan = read_winograd_plan(p, M, config);
    if constexpr (cuda_built)
      return bind_winograd(p, plan);
    else
      return not_built((plan.v_floats() + plan.product_floats()) * sizeof(float));
  }
};

}  // namespace

const Kernel& conv_winograd_f2() {
  static const Winograd<2, 3> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f4() {
  static const Winograd<4, 3> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f2_5x5() {
  static const Winograd<2, 5> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f4_5x5() {
  static const Winograd<4, 5> algorithm;
  return algorithm;
}
const Kernel& conv_winograd_f2_7x7() {
  static const Winograd<2, 7> algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
