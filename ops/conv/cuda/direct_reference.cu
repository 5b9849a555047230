// Convolution by definition, NCHW, one thread an output. The fallback where faster algorithms refuse, above all for
// filters that the network computes.

#include <algorithm>
#include <limits>

#include "ops/conv/cuda/one_launch.cuh"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// w [K][C/groups][R][S].
template <typename Index>
struct DirectCall : ConvCall<Index> {
  Index group_c, group_k, outputs;
};

// 32-bit indices where they fit: 64-bit ones double the kernel's instructions.
template <typename Index>
__global__ void __launch_bounds__(threads) direct(const __grid_constant__ DirectCall<Index> call) {
  wait_for_previous();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (item >= call.outputs) return;
  const auto at = static_cast<Index>(item);
  const Index q = at % call.q;
  const Index p = at / call.q % call.p;
  const Index k = at / call.q / call.p % call.k;
  const Index n = at / call.q / call.p / call.k;

  const Index left = q * call.stride_w - call.pad_left, top = p * call.stride_h - call.pad_top;
  const Index plane = call.height * call.width;
  const float* x = call.x + (n * call.c + k / call.group_k * call.group_c) * plane;
  const float* w = call.w + k * (call.group_c * call.r * call.s);
  float sum = 0;
  for (Index c = 0; c < call.group_c; ++c, x += plane) {
    // Sums each channel's window apart: one long accumulation drifts on inputs whose mean is not zero.
    float window = 0;
    for (Index r = 0; r < call.r; ++r) {
      const Index row = top + r * call.dilation_h;
      for (Index s = 0; s < call.s; ++s, ++w) {
        const Index column = left + s * call.dilation_w;
        if (row < 0 || row >= call.height || column < 0 || column >= call.width) continue;
        window = fmaf(x[row * call.width + column], *w, window);
      }
    }
    sum += window;
  }
  if (call.bias != nullptr) sum += call.bias[k];
  if (call.residual != nullptr) sum += call.residual[at];
  call.y[at] = call.activation(sum);
}

template <typename Index>
std::unique_ptr<const BoundKernel> bind_direct(const ConvProblem& p) {
  const std::int64_t outputs = p.n * p.k * p.p * p.q;
  const DirectCall<Index> call{ConvCall<Index>(p), static_cast<Index>(p.group_c()), static_cast<Index>(p.group_k()),
                               static_cast<Index>(outputs)};
  return std::make_unique<OneLaunch<DirectCall<Index>>>(p, call, direct<Index>, blocks_for(outputs, threads), threads);
}

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
  Plan plan(const ConvProblem& p, const Target& target) const override {
    constexpr double start_us = 1.2;
    const DeviceProfile& device = target.device;
    const bool long_rows = p.s >= 8;
    const double share_of_peak = long_rows ? 0.08 : 0.046, us_a_term = long_rows ? 0.035 : 0.12;
    const auto channels = static_cast<double>(p.group_c());
    const double terms =
        channels * (long_rows ? static_cast<double>(p.r * (p.s + 3) + 1) : static_cast<double>(p.r * p.s) + 1.8);
    const double outputs = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    const double products = 2 * outputs * terms / (share_of_peak * device.fp32_flops_per_us);
    const double alone = us_a_term * terms + (long_rows ? 0.25 * channels : 0);
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
    if (largest <= std::numeric_limits<std::int32_t>::max()) return bind_direct<std::int32_t>(p);
    return bind_direct<std::int64_t>(p);
  }
};

}  // namespace

const Kernel& conv_direct() {
  static const Direct algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
