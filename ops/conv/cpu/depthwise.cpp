// Depthwise convolution in NHWC: every output channel reads one input channel, so vectors run over channels. 3 and 5
// columns wide filters with stride 1 or 2 keep a few output pixels in registers; everything else goes pixel by pixel.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/simd/targets.h"
#include "ops/conv/algorithm.h"
#include "ops/core/fused_clamp.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/depthwise.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"
// clang-format on

#ifndef LENSLET_DEPTHWISE_SHARED
#define LENSLET_DEPTHWISE_SHARED
namespace lenslet {
namespace {

/// One row of output over a block of channels. Pointers are at the block's first channel.
struct DepthwiseLine {
  const float* x = nullptr;         ///< pixel 0 of the first image row that a tap reads
  std::int64_t x_row = 0;           ///< floats from one tap's row to the next one's
  const float* w = nullptr;         ///< the first such tap: [rows][S][K]
  std::int64_t rows = 0;            ///< taps that lie inside the image
  std::int64_t k = 0;               ///< floats from pixel to pixel and from tap to tap
  std::int64_t block = 0;           ///< channels to compute
  const float* bias = nullptr;      ///< or null
  const float* residual = nullptr;  ///< pixel 0 of the row, or null
  float* y = nullptr;               ///< pixel 0 of the row
};

}  // namespace
}  // namespace lenslet
#endif

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE void finish(D d, hn::Vec<D> sum, const DepthwiseLine& line, std::int64_t at, const FusedClamp& clamp) {
  if (line.residual != nullptr) sum = hn::Add(sum, hn::LoadU(d, line.residual + at));
  sum = at_most(hn::Set(d, clamp.high), at_least(hn::Set(d, clamp.low), sum));
  hn::StoreU(sum, d, line.y + at);
}

/// Output pixels q .. q + Px - 1, all taps inside the image; column 0 of the first one's window is image column
/// `column`. Each input vector is loaded once and used for up to S pixels. AVX2: Px + S + 1 of 16 registers.
template <int S, int Stride, int Px>
void pixel_block(const DepthwiseLine& line, std::int64_t q, std::int64_t column, const FusedClamp& clamp) {
  constexpr int columns = (Px - 1) * Stride + S;
  const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V acc[Px];
    const V start = line.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, line.bias + c);
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) acc[i] = start;
    const float* HWY_RESTRICT x = line.x + column * line.k + c;
    const float* HWY_RESTRICT w = line.w + c;
    for (std::int64_t r = 0; r < line.rows; ++r) {
      V tap[S];
      HWY_UNROLL(8)
      for (int s = 0; s < S; ++s) tap[s] = hn::LoadU(d, w + s * line.k);
      HWY_UNROLL(16)
      for (int j = 0; j < columns; ++j) {
        const V in = hn::LoadU(d, x + j * line.k);
        HWY_UNROLL(8)
        for (int i = 0; i < Px; ++i) {
          const int s = j - i * Stride;
          if (s >= 0 && s < S) acc[i] = hn::MulAdd(in, tap[s], acc[i]);
        }
      }
      x += line.x_row;
      w += S * line.k;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) finish(d, acc[i], line, (q + i) * line.k + c, clamp);
  };
  over_channels(hn::ScalableTag<float>(), 0, line.block, body);
}

/// One output pixel, any filter: taps [first, last) of each row lie inside the image; the first of them reads `column`.
void pixel(const DepthwiseLine& line, const ConvProblem& problem, std::int64_t q, const FusedClamp& clamp) {
  const std::int64_t left = q * problem.stride_w - problem.pad_left;
  const std::int64_t dilation = problem.dilation_w;
  const std::int64_t first = left >= 0 ? 0 : std::min(problem.s, (-left + dilation - 1) / dilation);
  const std::int64_t last = left >= problem.w ? first : std::min(problem.s, (problem.w - 1 - left) / dilation + 1);
  const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
    auto acc = line.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, line.bias + c);
    for (std::int64_t r = 0; r < line.rows; ++r) {
      const float* HWY_RESTRICT x = line.x + r * line.x_row + left * line.k + c;
      const float* HWY_RESTRICT w = line.w + r * problem.s * line.k + c;
      for (std::int64_t s = first; s < last; ++s)
        acc = hn::MulAdd(hn::LoadU(d, x + s * dilation * line.k), hn::LoadU(d, w + s * line.k), acc);
    }
    finish(d, acc, line, q * line.k + c, clamp);
  };
  over_channels(hn::ScalableTag<float>(), 0, line.block, body);
}

/// [begin, end): output pixels whose window lies inside the image from left to right.
template <int S, int Stride>
void line_of(const DepthwiseLine& line, const ConvProblem& problem, std::int64_t begin, std::int64_t end,
             const FusedClamp& clamp) {
  for (std::int64_t q = 0; q < begin; ++q) pixel(line, problem, q, clamp);
  std::int64_t q = begin;
  for (; q + 4 <= end; q += 4) pixel_block<S, Stride, 4>(line, q, q * Stride - problem.pad_left, clamp);
  for (; q + 2 <= end; q += 2) pixel_block<S, Stride, 2>(line, q, q * Stride - problem.pad_left, clamp);
  for (; q < problem.q; ++q) pixel(line, problem, q, clamp);
}

void depthwise_line(const DepthwiseLine& line, const ConvProblem& problem) {
  const FusedClamp clamp(problem.activation);
  const std::int64_t begin = std::min(problem.q, (problem.pad_left + problem.stride_w - 1) / problem.stride_w);
  const std::int64_t span = (problem.s - 1) * problem.dilation_w + 1;
  const std::int64_t room = problem.w + problem.pad_left - span;  // q * stride_w <= room
  const std::int64_t end = room < 0 ? begin : std::max(begin, std::min(problem.q, room / problem.stride_w + 1));

  const bool dense = problem.dilation_w == 1;
  if (dense && problem.s == 3 && problem.stride_w == 1)
    line_of<3, 1>(line, problem, begin, end, clamp);
  else if (dense && problem.s == 3 && problem.stride_w == 2)
    line_of<3, 2>(line, problem, begin, end, clamp);
  else if (dense && problem.s == 5 && problem.stride_w == 1)
    line_of<5, 1>(line, problem, begin, end, clamp);
  else if (dense && problem.s == 5 && problem.stride_w == 2)
    line_of<5, 2>(line, problem, begin, end, clamp);
  else
    for (std::int64_t q = 0; q < problem.q; ++q) pixel(line, problem, q, clamp);

  if (!clamp.after) return;
  if (line.block == line.k) return activate_f32(problem.activation, line.y, problem.q * line.k);
  for (std::int64_t q = 0; q < problem.q; ++q) activate_f32(problem.activation, line.y + q * line.k, line.block);
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(depthwise_line);

std::int64_t multiplier(const ConvProblem& problem) { return problem.k / problem.c; }

/// Channels computed at a time: their filters stay in L1 (8 KiB of it) while a line of pixels passes.
std::int64_t channel_block(const ConvProblem& problem) {
  if (multiplier(problem) != 1) return problem.k;
  constexpr std::int64_t l1_floats = 2048;
  const std::int64_t most = std::max<std::int64_t>(16, l1_floats / (problem.r * problem.s));
  const std::int64_t blocks = (problem.k + most - 1) / most;
  return ((problem.k + blocks - 1) / blocks + 15) / 16 * 16;
}

/// Floats of a worker's copy of the image rows below one output row, each channel repeated.
std::int64_t repeated_floats(const ConvProblem& problem) {
  return multiplier(problem) == 1 ? 0 : (problem.r * problem.w * problem.k + 15) / 16 * 16;
}

class BoundDepthwise final : public BoundConv {
 public:
  BoundDepthwise(const ConvProblem& p, int threads)
      : BoundConv(p, static_cast<std::size_t>(repeated_floats(p) * threads) * sizeof(float)) {}

 private:
  void compute(const ConvRun& run) const override {
    const float* w = run.filter;
    const std::int64_t block = channel_block(problem);
    const std::int64_t blocks = (problem.k + block - 1) / block;
    const std::int64_t line_work = problem.q * block * problem.r * problem.s;
    // Pieces of 8 us and more; fewer lines in a piece where there are few lines, as at 7x7.
    const std::int64_t grain = std::max<std::int64_t>(1, (128 << 10) / std::max<std::int64_t>(line_work, 1));
    auto* scratch = reinterpret_cast<float*>(run.workspace.data());

    // Rows innermost: the next one reads most of the same image rows.
    run.pool->parallel_for(
        problem.n * blocks * problem.p, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t p = i % problem.p;
            const std::int64_t c = i / problem.p % blocks * block;
            const std::int64_t n = i / problem.p / blocks;
            const std::int64_t top = p * problem.stride_h - problem.pad_top;
            const std::int64_t dilation = problem.dilation_h;
            const std::int64_t first = top >= 0 ? 0 : std::min(problem.r, (-top + dilation - 1) / dilation);
            const std::int64_t last =
                top >= problem.h ? first : std::max(first, std::min(problem.r, (problem.h - 1 - top) / dilation + 1));

            DepthwiseLine line;
            line.k = problem.k;
            line.block = std::min(block, problem.k - c);
            line.rows = last - first;
            line.w = w + first * problem.s * problem.k + c;
            const float* image = run.x + n * problem.h * problem.w * problem.c;
            const std::int64_t x_row = problem.w * problem.c;
            if (multiplier(problem) == 1) {
              line.x = image + (line.rows == 0 ? 0 : top + first * dilation) * x_row + c;
              line.x_row = dilation * x_row;
            } else {
              float* repeated = scratch + worker * repeated_floats(problem);
              for (std::int64_t r = 0; r < line.rows; ++r)
                repeat_channels(image + (top + (first + r) * dilation) * x_row, repeated + r * problem.w * problem.k,
                                x_row, multiplier(problem));
              line.x = repeated;
              line.x_row = problem.w * problem.k;
            }
            const std::int64_t at = (n * problem.p + p) * problem.q * problem.k + c;
            line.bias = run.bias == nullptr ? nullptr : run.bias + c;
            line.residual = run.residual == nullptr ? nullptr : run.residual + at;
            line.y = run.y + at;
            HWY_DYNAMIC_DISPATCH(depthwise_line)(line, problem);
          }
        });
  }

  static void repeat_channels(const float* from, float* to, std::int64_t count, std::int64_t times) {
    for (std::int64_t i = 0; i < count; ++i) to = std::fill_n(to, times, from[i]);
  }
};

class Depthwise final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "depthwise"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  static constexpr double max_workspace_a_thread = 64 << 20;

  std::optional<std::string> refuse(const ConvProblem& problem, const Target&) const override {
    if (problem.groups != problem.c) return "groups differ from the input channels";
    const double row_bytes = 4.0 * static_cast<double>(problem.w) * static_cast<double>(problem.k);
    if (multiplier(problem) != 1 && static_cast<double>(problem.r) * row_bytes > max_workspace_a_thread)
      return "the repeated rows of one output line exceed 64 MiB";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    const bool blocked = p.dilation_w == 1 && (p.s == 3 || p.s == 5) && p.stride_w <= 2;
    const double repeated = multiplier(p) == 1 ? 1 : 1.5;
    Plan plan;
    // As for direct sums of r * s terms.
    plan.tolerance = 3e-6 + 4e-7 * std::sqrt(static_cast<double>(p.r * p.s));
    plan.estimated_us = 1 + repeated * p.flops() / ((blocked ? 0.35 : 0.15) * rates.fp32_flops_per_us) +
                        p.bytes() / (4 * rates.bytes_per_us);
    return plan;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override { return {.floats = p.k * p.r * p.s}; }
  /// [R][S][K]
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter, std::span<float> to) const override {
    for (std::int64_t k = 0; k < p.k; ++k)
      for (std::int64_t tap = 0; tap < filter.terms; ++tap)
        to[static_cast<std::size_t>(tap * p.k + k)] = filter.weight(k, tap);
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view,
                                               const DeviceProfile& device) const override {
    return std::make_unique<BoundDepthwise>(p, device.units);
  }
};

}  // namespace

const Kernel& conv_depthwise() {
  static const Depthwise algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif
