// A thread an output pixel, NHWC, nothing but registers and caches: 8 filters at a time, whose weights all threads of a
// warp read together. direct_pixel: a thread goes through all filters; direct_block: blocks of 8 filters have threads
// of their own. They measure what the tiles of direct_tile.cu gain.

#include <algorithm>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/conv/cuda/direct_limits.h"
#include "ops/conv/cuda/filter_groups.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 128;

/// x [N][height][width][C], w as prepare_groups() makes it, y and residual [pixels][K]; bias and residual may be null.
struct PixelCall {
  const float *x, *w, *bias, *residual;
  float* y;
  int c, height, width, k, r, s;
  int stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int pixels;  ///< N * p * q
  int groups, groups_a_thread;
  FastDivider p, q;
  DeviceActivation activation;
};

/// Adds value * w[0..8).
__device__ void multiply_add(float (&sums)[group_floats], float value, const float* w) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(w)), high = __ldg(reinterpret_cast<const float4*>(w) + 1);
  const float weights[group_floats] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int k = 0; k < group_floats; ++k) sums[k] = fmaf(value, weights[k], sums[k]);
}

/// Channels by fours where quads, which takes a C that is a multiple of 4.
template <bool quads>
__global__ void __launch_bounds__(threads) direct_pixel(const __grid_constant__ PixelCall call) {
  wait_for_previous();
  const int pixel = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (pixel >= call.pixels) return;
  int image = pixel;
  const int q = call.q.split(image), p = call.p.split(image);
  const int top = p * call.stride_h - call.pad_top, left = q * call.stride_w - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(image) * call.height * call.width * call.c;
  const int w_tap = call.groups * group_floats, w_channel = call.r * call.s * w_tap;

  const int first_group = static_cast<int>(blockIdx.y) * call.groups_a_thread;
  const int last_group = min(first_group + call.groups_a_thread, call.groups);
  for (int group = first_group; group < last_group; ++group) {
    float sums[group_floats] = {};
    for (int r = 0; r < call.r; ++r) {
      const int h = top + r * call.dilation_h;
      if (h < 0 || h >= call.height) continue;
      for (int s = 0; s < call.s; ++s) {
        const int column = left + s * call.dilation_w;
        if (column < 0 || column >= call.width) continue;
        const float* from = x + (h * call.width + column) * call.c;
        const float* w = call.w + (r * call.s + s) * w_tap + group * group_floats;
        if constexpr (quads) {
          for (int c = 0; c < call.c; c += 4, w += 4 * w_channel) {
            const float4 values = *reinterpret_cast<const float4*>(from + c);
            multiply_add(sums, values.x, w);
            multiply_add(sums, values.y, w + w_channel);
            multiply_add(sums, values.z, w + 2 * w_channel);
            multiply_add(sums, values.w, w + 3 * w_channel);
          }
        } else {
          for (int c = 0; c < call.c; ++c, w += w_channel) multiply_add(sums, from[c], w);
        }
      }
    }
    const int first_k = group * group_floats;
    const std::int64_t at = static_cast<std::int64_t>(pixel) * call.k + first_k;
#pragma unroll
    for (int i = 0; i < group_floats; ++i) {
      if (first_k + i >= call.k) break;
      float sum = sums[i];
      if (call.bias != nullptr) sum += call.bias[first_k + i];
      if (call.residual != nullptr) sum += call.residual[at + i];
      call.y[at + i] = call.activation(sum);
    }
  }
}

class DirectPixel final : public ConvAlgorithm {
 public:
  DirectPixel(std::string_view name, bool all_filters) : name_(name), all_filters_(all_filters) {}
  std::string_view name() const override { return name_; }
  Format format() const override { return formats::nhwc; }

  std::optional<std::string> refuse(const ConvProblem& p) const override { return refuse_direct(p); }
  double tolerance(const ConvProblem& problem) const override { return direct_tolerance(problem); }

  double estimate_us(const ConvProblem& p, const MachineRates& rates) const override {
    // Share of the peak, what follows one another in a thread, and the wait for the first inputs: 13.9 us measured on
    // an H200 (16 by this) for 64x56x56 -> 64, 1x1, by direct_block; 91 (106) by direct_pixel. Within 40 % of most
    // layers.
    constexpr double share = 0.2, us_a_term = 0.13, start_us = 6;
    const auto groups = static_cast<double>(group_count(p.k, group_floats));
    const auto pixels = static_cast<double>(p.n * p.p * p.q), terms = static_cast<double>(p.c * p.r * p.s);
    const double busy = 2 * pixels * groups * group_floats * terms / (share * rates.flops_per_us);
    const double serial = us_a_term * terms * (all_filters_ ? groups : 1);
    return rates.launch_us + start_us + busy + serial + p.bytes() / rates.bytes_per_us;
  }

  std::size_t workspace_bytes(const ConvProblem&, int) const override { return 0; }

  std::unique_ptr<PreparedFilter> prepare(const ConvProblem& problem, const ConvFilter& filter) const override {
    return prepare_groups(problem, filter, group_floats);
  }

  void run(const ConvRun& run) const override {
    const ConvProblem& p = run.problem;
    const auto integer = [](std::int64_t value) { return static_cast<int>(value); };
    const int groups = integer(group_count(p.k, group_floats));
    const int groups_a_thread = all_filters_ ? groups : 1;
    const PixelCall call{.x = run.x,
                         .w = static_cast<const DeviceFilter&>(*run.filter).w.data(),
                         .bias = run.bias,
                         .residual = run.residual,
                         .y = run.y,
                         .c = integer(p.c),
                         .height = integer(p.h),
                         .width = integer(p.w),
                         .k = integer(p.k),
                         .r = integer(p.r),
                         .s = integer(p.s),
                         .stride_h = integer(p.stride_h),
                         .stride_w = integer(p.stride_w),
                         .dilation_h = integer(p.dilation_h),
                         .dilation_w = integer(p.dilation_w),
                         .pad_top = integer(p.pad_top),
                         .pad_left = integer(p.pad_left),
                         .pixels = integer(p.n * p.p * p.q),
                         .groups = groups,
                         .groups_a_thread = groups_a_thread,
                         .p = FastDivider(p.p),
                         .q = FastDivider(p.q),
                         .activation = DeviceActivation(p.activation)};
    const bool quads = p.c % 4 == 0 && reinterpret_cast<std::uintptr_t>(run.x) % 16 == 0;
    const dim3 grid(blocks_for(call.pixels, threads), static_cast<unsigned>(groups / groups_a_thread));
    launch(*run.cuda, quads ? direct_pixel<true> : direct_pixel<false>, grid, threads, 0, call);
  }

 private:
  std::string_view name_;
  bool all_filters_;
};

}  // namespace

const ConvAlgorithm& conv_direct_pixel() {
  static const DirectPixel algorithm("direct_pixel", true);
  return algorithm;
}

const ConvAlgorithm& conv_direct_block() {
  static const DirectPixel algorithm("direct_block", false);
  return algorithm;
}

}  // namespace lenslet::cuda
