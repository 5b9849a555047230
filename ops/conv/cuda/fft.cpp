// fft: refusals and filters. Launches: fft.cu.

#include <algorithm>
#include <string>

#include "ops/conv/cuda/fft_plan.h"
#include "ops/core/not_built.h"

namespace lenslet::cuda {
namespace {

/// The largest shared memory of a block over all kernels.
std::size_t most_shared_bytes() {
  std::size_t most = 0;
  with_index<fft_sizes.size()>([&](auto i) { most = std::max(most, FftBlockFor<fft_sizes[i]>::shared_bytes); });
  with_index<fft_product_tiles.size()>(
      [&](auto i) { most = std::max(most, FftProductTraits<static_cast<FftProductTile>(i())>::shared_bytes); });
  return most;
}

class Fft final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "fft"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (auto reason = refuse_fft(p)) return reason;
    return target.device.refuse_shared(most_shared_bytes());
  }

  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    return candidate_of(p, plan_fft(p, target.device), target);
  }
  std::vector<ConvCandidate> candidates(const ConvProblem& p, const Target& target) const override {
    return candidates_of(
        fft_tilings(p), [&](const auto& tiling) { return estimate_fft_us(p, tiling, reference_gpu()); },
        [&](const auto& tiling) { return candidate_of(p, tiling, target); });
  }

  static ConvCandidate candidate_of(const ConvProblem& p, const FftPlan& tiling, const Target& target) {
    return {.pitched = true,
            .config = tiling.str(),
            .estimated_us = estimate_fft_us(p, tiling, target.device),
            .tolerance = fft_tolerance(p)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view config) const override {
    const FftPlan plan = read_fft_plan(p, config);
    return {.elements = static_cast<std::int64_t>(plan.u_floats()), .form = std::to_string(plan.size)};
  }
  void transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    fft_filters(p, read_fft_plan(p, config), filter, as_floats(bytes));
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    const FftPlan plan = read_fft_plan(p, config);
    if constexpr (cuda_built)
      return bind_fft(p, plan);
    else
      return not_built((plan.v_floats() + plan.product_floats()) * sizeof(float));
  }
};

}  // namespace

const Kernel& conv_fft() {
  static const Fft algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
