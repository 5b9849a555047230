// Depthwise convolution in NHWC: every output channel reads one input channel, so vectors run over channels. Filters 3,
// 5 and 7 columns wide keep some output pixels in registers; everything else goes pixel by pixel.

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
  const float* w = nullptr;         ///< the first such tap: [rows][S][block]
  std::int64_t rows = 0;            ///< taps that lie inside the image
  std::int64_t k = 0;               ///< floats from pixel to pixel
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

/// Px output pixels whose windows overlap. Column j of their windows reads image column `left` + j * dilation; those of
/// [first, last) lie inside the image.
struct PixelBlock {
  std::int64_t q = 0;     ///< the first; the others follow `step` pixels apart
  std::int64_t step = 1;  ///< dilation
  std::int64_t left = 0, first = 0, last = 0;
};

/// Each input vector is loaded once and used for up to S pixels. AVX2: Px + S + 1 of 16 registers. `whole`: all columns
/// lie inside.
template <int S, int Stride, int Px, bool whole>
void pixel_block(const DepthwiseLine& line, const PixelBlock& block, const FusedClamp& clamp) {
  constexpr int columns = (Px - 1) * Stride + S;
  const std::int64_t step = block.step * line.k, first = block.first, last = block.last;
  const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
    using V = hn::Vec<decltype(d)>;
    V acc[Px];
    const V start = line.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, line.bias + c);
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) acc[i] = start;
    std::int64_t at = block.left * line.k + c;
    const float* HWY_RESTRICT w = line.w + c;
    for (std::int64_t r = 0; r < line.rows; ++r) {
      V tap[S];
      HWY_UNROLL(8)
      for (int s = 0; s < S; ++s) tap[s] = hn::LoadU(d, w + s * line.block);
      HWY_UNROLL(32)
      for (int j = 0; j < columns; ++j) {
        if (!whole && (j < first || j >= last)) continue;
        const V in = hn::LoadU(d, line.x + (at + j * step));
        HWY_UNROLL(8)
        for (int i = 0; i < Px; ++i) {
          const int s = j - i * Stride;
          if (s >= 0 && s < S) acc[i] = hn::MulAdd(in, tap[s], acc[i]);
        }
      }
      at += line.x_row;
      w += S * line.block;
    }
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) finish(d, acc[i], line, (block.q + i * block.step) * line.k + c, clamp);
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
      const float* HWY_RESTRICT w = line.w + r * problem.s * line.block + c;
      for (std::int64_t s = first; s < last; ++s)
        acc = hn::MulAdd(hn::LoadU(d, x + s * dilation * line.k), hn::LoadU(d, w + s * line.block), acc);
    }
    finish(d, acc, line, q * line.k + c, clamp);
  };
  over_channels(hn::ScalableTag<float>(), 0, line.block, body);
}

/// With dilation (then stride 1) every so many pixels are a line of their own, which is not dilated. The last block of
/// a line begins early enough to be whole: what it computes twice comes out the same.
template <int S, int Stride>
void line_of(const DepthwiseLine& line, const ConvProblem& problem, const FusedClamp& clamp) {
  constexpr int most = 7, few = 4;  // images are 7 x 2^n wide
  const std::int64_t step = problem.dilation_w;
  // The block of so many columns whose first pixel is `q`.
  const auto place = [&](std::int64_t q, std::int64_t columns) {
    PixelBlock block{.q = q, .step = step, .left = q * Stride - problem.pad_left};
    block.first = block.left >= 0 ? 0 : (-block.left + step - 1) / step;
    block.last = block.left >= problem.w ? 0 : std::min(columns, (problem.w - 1 - block.left) / step + 1);
    return block;
  };
  for (std::int64_t begin = 0; begin < std::min(step, problem.q); ++begin) {
    const std::int64_t count = (problem.q - begin + step - 1) / step;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t left = count - done;
      // Not where the residual may be y itself: it would be added twice.
      const std::int64_t reach = line.residual == nullptr ? count : left;
      const int width = left > few && reach >= most ? most : left > 1 && reach >= few ? few : 1;
      const std::int64_t first = std::min(done, count - width);
      const PixelBlock block = place(begin + first * step, (width - 1) * Stride + S);
      if (width == 1)
        pixel_block<S, Stride, 1, false>(line, block, clamp);
      else if (width == few)
        pixel_block<S, Stride, few, false>(line, block, clamp);
      else if (block.first == 0 && block.last == (most - 1) * Stride + S)
        pixel_block<S, Stride, most, true>(line, block, clamp);
      else
        pixel_block<S, Stride, most, false>(line, block, clamp);
      done = first + width;
    }
  }
}

void depthwise_line(const DepthwiseLine& line, const ConvProblem& problem) {
  const FusedClamp clamp(problem.activation);
  const bool even = problem.stride_w == 1, halved = problem.stride_w == 2 && problem.dilation_w == 1;
  if (even && problem.s == 3)
    line_of<3, 1>(line, problem, clamp);
  else if (halved && problem.s == 3)
    line_of<3, 2>(line, problem, clamp);
  else if (even && problem.s == 5)
    line_of<5, 1>(line, problem, clamp);
  else if (halved && problem.s == 5)
    line_of<5, 2>(line, problem, clamp);
  else if (even && problem.s == 7)
    line_of<7, 1>(line, problem, clamp);
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
    const std::int64_t taps = problem.r * problem.s;
    const std::int64_t block = channel_block(problem);
    const std::int64_t blocks = (problem.k + block - 1) / block;
    const std::int64_t line_work = problem.q * block * taps;
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
            line.w = w + c * taps + first * problem.s * line.block;
            if (p == 0) fetch(line.w + line.block * taps, std::min(block, problem.k - c - line.block) * taps);
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

  /// The next block's filters, which come from memory, meanwhile.
  static void fetch(const float* filters, std::int64_t floats) {
    for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(filters + i, 0, 2);
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
    const bool blocked = (p.stride_w == 1 && (p.s == 3 || p.s == 5 || p.s == 7)) ||
                         (p.stride_w == 2 && p.dilation_w == 1 && (p.s == 3 || p.s == 5));
    const double repeated = multiplier(p) == 1 ? 1 : 1.5;
    Plan plan;
    // As for direct sums of r * s terms.
    plan.tolerance = 3e-6 + 4e-7 * std::sqrt(static_cast<double>(p.r * p.s));
    plan.estimated_us = 1 + repeated * p.flops() / ((blocked ? 0.35 : 0.15) * rates.fp32_flops_per_us) +
                        p.bytes() / (4 * rates.bytes_per_us);
    return plan;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override { return {.floats = p.k * p.r * p.s}; }
  /// A block of channels after the other, each [R][S][block].
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter, std::span<float> to) const override {
    const std::int64_t most = channel_block(p);
    for (std::int64_t begin = 0; begin < p.k; begin += most) {
      const std::int64_t block = std::min(most, p.k - begin);
      for (std::int64_t k = 0; k < block; ++k)
        for (std::int64_t tap = 0; tap < filter.terms; ++tap)
          to[static_cast<std::size_t>(begin * filter.terms + tap * block + k)] = filter.weight(begin + k, tap);
    }
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
