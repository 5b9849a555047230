// The convolution as its definition reads, NCHW, a thread an output: the fallback for every problem that a faster
// algorithm refuses, and the only one for filters that the network computes.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cuda/launch.h"
#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cpu/packed_filter.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/device_filter.h"
#include "ops/conv/cuda/layout_cost.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// ConvRun and ConvProblem with indices of one type.
template <typename Index>
struct DirectCall {
  const float *x, *w, *scale, *bias, *residual;  // scale, bias and residual may be null
  float* y;
  Index group_c, group_k, height, width, k, r, s, p, q;
  Index stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  Index channels, outputs;
  DeviceActivation activation;
};

// Indices of 32 bits where all of them fit: 64-bit ones take the kernel twice the instructions.
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
  const float* x = call.x + (n * call.channels + k / call.group_k * call.group_c) * plane;
  const float* w = call.w + k * (call.group_c * call.r * call.s);
  float sum = 0;
  for (Index c = 0; c < call.group_c; ++c, x += plane) {
    // A channel's window apart: rounding errors of one long run drift on inputs whose mean is not zero.
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
  if (call.scale != nullptr) sum *= call.scale[k];
  if (call.bias != nullptr) sum += call.bias[k];
  if (call.residual != nullptr) sum += call.residual[at];
  call.y[at] = call.activation(sum);
}

template <typename Index>
void launch_direct(const ConvRun& run, const DirectFilter& filter) {
  const ConvProblem& p = run.problem;
  const auto index = [](std::int64_t value) { return static_cast<Index>(value); };
  const std::int64_t outputs = p.n * p.k * p.p * p.q;
  const DirectCall<Index> call{.x = run.x,
                               .w = filter.w,
                               .scale = filter.scale,
                               .bias = run.bias,
                               .residual = run.residual,
                               .y = run.y,
                               .group_c = index(p.group_c()),
                               .group_k = index(p.group_k()),
                               .height = index(p.h),
                               .width = index(p.w),
                               .k = index(p.k),
                               .r = index(p.r),
                               .s = index(p.s),
                               .p = index(p.p),
                               .q = index(p.q),
                               .stride_h = index(p.stride_h),
                               .stride_w = index(p.stride_w),
                               .dilation_h = index(p.dilation_h),
                               .dilation_w = index(p.dilation_w),
                               .pad_top = index(p.pad_top),
                               .pad_left = index(p.pad_left),
                               .channels = index(p.c),
                               .outputs = index(outputs),
                               .activation = DeviceActivation(p.activation)};
  launch(*run.cuda, direct<Index>, blocks_for(outputs, threads), threads, 0, call);
}

class Direct final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct"; }
  std::optional<std::string> refuse(const ConvProblem&) const override { return std::nullopt; }
  Format format() const override { return formats::nchw; }
  double tolerance(const ConvProblem& problem) const override { return packed_tolerance(problem); }

  /// A term is two loads from the L1 cache and one thread's terms follow one another; a channel costs as much as 1.8
  /// terms more, since nothing of it is in the cache yet. Within 25 % on 50 of 52 layers measured on an H200, 3 us to 2
  /// ms.
  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    constexpr double share_of_peak = 0.046, us_a_term = 0.12, terms_a_channel = 1.8, start_us = 1.2;
    const double terms = static_cast<double>(p.group_c()) * (static_cast<double>(p.r * p.s) + terms_a_channel);
    const double outputs = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
    const double products = 2 * outputs * terms / (share_of_peak * rates.flops_per_us);
    return rates.launch_us + start_us + std::max(us_a_term * terms, products) + p.bytes() / rates.bytes_per_us +
           nchw_conversions_us(p, rates);
  }

  std::size_t workspace_bytes(const ConvProblem&, int) const override { return 0; }

  /// The form in which filters arrive that the network computes, so that run() knows only one.
  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    const auto terms = static_cast<std::size_t>(problem.group_c() * problem.r * problem.s);
    std::vector<float> w(static_cast<std::size_t>(problem.k) * terms);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = scaled_weight(filter, i / terms, i % terms, terms);
    const auto uploaded = std::make_shared<const DeviceBuffer<float>>(upload(w));
    auto prepared = std::make_unique<DirectFilter>();
    prepared->w = uploaded->data();
    prepared->owned = std::shared_ptr<const float[]>(uploaded, uploaded->data());
    prepared->owned_bytes = uploaded->bytes();
    return prepared;
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const auto& filter = static_cast<const DirectFilter&>(*run.filter);
    // Coordinates reach over the padded image.
    const ConvProblem padded = p.with_explicit_padding();
    const std::int64_t largest =
        std::max({p.n * p.c * p.h * p.w, p.k * p.group_c() * p.r * p.s, p.n * p.k * p.p * p.q, padded.h, padded.w});
    if (largest <= std::numeric_limits<std::int32_t>::max())
      launch_direct<std::int32_t>(run, filter);
    else
      launch_direct<std::int64_t>(run, filter);
  }
};

}  // namespace

const ConvAlgorithm& conv_direct() {
  static const Direct algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
