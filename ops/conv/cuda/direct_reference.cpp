// direct: cost. Kernel: direct_reference.cu.

#include "ops/conv/cuda/direct_reference.h"

#include <algorithm>
#include <limits>

#include "ops/core/not_built.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

class Direct final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct"; }
  DeviceKind device() const override { return DeviceKind::cuda; }

 private:
  bool takes_anything() const override { return true; }
  std::optional<std::string> refuse(const ConvProblem&, const Target&) const override { return std::nullopt; }

  /// One multiplication is two L1 loads; they follow one another in a thread. A new channel costs 1.8 more: nothing of
  /// it is cached. Within 25 % for 50 of 52 layers on an H200, 3 us to 2 ms. Rows of 8 taps or more prefetch: a row
  /// costs 3 more, a channel 1, or 0.25 us where it is the only one (H100, 26 November 2026, 46 drawn problems).
  ConvCandidate candidate(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 1.2;
    const DeviceProfile& device = target.device;
    const bool long_rows = p.s >= 8;
    const double share_of_peak = long_rows ? 0.08 : 0.046, us_per_k = long_rows ? 0.035 : 0.12;
    const auto channels = static_cast<double>(p.group_c());
    const double gemm_k =
        channels * (long_rows ? static_cast<double>(p.r * (p.s + 3) + 1) : static_cast<double>(p.r * p.s) + 1.8);
    const double outputs = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    const double products = 2 * outputs * gemm_k / (share_of_peak * device.fp32_flops_per_us);
    const double alone = us_per_k * gemm_k + (long_rows ? 0.25 * channels : 0);
    return {.format = formats::nchw,
            .estimated_us = device.launch_us + start_us + std::max(alone, products) + p.bytes() / device.bytes_per_us,
            .tolerance = sum_tolerance(p.group_c() * p.r * p.s)};
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile&) const override {
    ConfigReader(config).finish();
    // Coordinates range over the padded image.
    const ConvProblem padded = p.with_explicit_padding();
    const std::int64_t largest =
        std::max({p.n * p.c * p.h * p.w, p.k * p.group_c() * p.r * p.s, p.n * p.k * p.p * p.q, padded.h, padded.w});
    if constexpr (cuda_built)
      return bind_direct(p, largest > std::numeric_limits<std::int32_t>::max());
    else
      return not_built();
  }
};

}  // namespace

const Kernel& conv_direct() {
  static const Direct algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
