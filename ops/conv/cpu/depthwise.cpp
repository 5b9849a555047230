// Depthwise convolution in NHWC: every output channel reads one input channel, so vectors run over channels. Filters 3,
// 5 and 7 columns wide keep some output pixels in registers; everything else goes pixel by pixel.

#include <algorithm>
#include <cmath>
#include <type_traits>

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

// Sanitizers want the code, not its speed: with unrolled loops clang instruments this file for more than ten minutes.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef HWY_UNROLL
#define HWY_UNROLL(factor)
#endif
#endif

#ifndef LENSLET_DEPTHWISE_SHARED
#define LENSLET_DEPTHWISE_SHARED
namespace lenslet {
namespace {

/// One row of output, or two, over a block of channels. Pointers are at the block's first channel.
struct DepthwiseLine {
  const float* x = nullptr;         ///< pixel 0 of the first image row that is read
  std::int64_t x_row = 0;           ///< floats from one row that is read to the next one
  std::int64_t x_rows = 0;          ///< how many are read
  const float* w = nullptr;         ///< [R][S][block]
  std::int64_t first = 0;           ///< the tap of (the first) output row that reads x; of the second: stride_h less
  std::int64_t k = 0;               ///< floats from pixel to pixel
  std::int64_t block = 0;           ///< channels to compute
  const float* bias = nullptr;      ///< or null
  const float* residual = nullptr;  ///< pixel 0 of the row, or null
  float* y = nullptr;               ///< pixel 0 of the row
  int y_rows = 1;                   ///< 1 or 2
  std::int64_t y_row = 0;           ///< floats from one of them to the next, and from one's residual to the next's
};

}  // namespace
}  // namespace lenslet
#endif

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Registers: Px * Rows accumulators, the S taps of a line for each row, and an input. 7 pixels and two rows fit 32 of
// them, 4 pixels fit 16; images are 7 x 2^n wide.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
constexpr int most_of_two_rows = 4;
#else
constexpr int most_of_two_rows = 7;
#endif
constexpr int most = 7, few = 4;

// Vectors of which only the first lanes count are loaded and stored through a mask where that touches nothing else.
constexpr bool masked = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

/// What all blocks of a line share over one vector of channels; pointers are at its first one.
template <class D>
struct Sweep {
  DepthwiseLine line;
  std::int64_t width;  ///< of the image
  std::int64_t taps_h, stride_h;
  hn::Vec<D> start, low, high;
  hn::Mask<D> lanes;  ///< that count, where not all do
};

template <bool part, class D>
HWY_INLINE hn::Vec<D> load(D d, hn::Mask<D> lanes, const float* from) {
  if constexpr (part) return hn::MaskedLoad(lanes, d, from);
  return hn::LoadU(d, from);
}
template <bool part, class D>
HWY_INLINE void store(D d, hn::Mask<D> lanes, hn::Vec<D> value, float* to) {
  if constexpr (part) return hn::BlendedStore(value, lanes, d, to);
  hn::StoreU(value, d, to);
}

/// Px pixels of Rows output rows, from pixel `q` on, `step` (the dilation) apart; their windows overlap, so that each
/// input vector is loaded once and used for up to S pixels of each row. The window of the first begins at image column
/// `left`; `whole`: all columns lie inside the image. An element's products are added in the order of r, then s,
/// whatever block it falls into.
template <int S, int Stride, int Px, int Rows, bool whole, bool part, class D>
HWY_INLINE void pixel_block(D d, const Sweep<D>& sweep, std::int64_t q, std::int64_t left, std::int64_t step) {
  using V = hn::Vec<D>;
  constexpr int columns = (Px - 1) * Stride + S;
  // Copies: a store of floats could change what a reference shows, for all that the compiler knows.
  const std::int64_t k = sweep.line.k, block = sweep.line.block, x_row = sweep.line.x_row, width = sweep.width;
  const std::int64_t taps_h = sweep.taps_h, stride_h = sweep.stride_h, rows = sweep.line.x_rows;
  const auto lanes = sweep.lanes;
  V acc[Rows][Px];
  HWY_UNROLL(2)
  for (int o = 0; o < Rows; ++o) {
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i) acc[o][i] = sweep.start;
  }
  // Left of the image nothing is read. (Offsets in place of pointers, here and for w: 3 to 10 % slower.)
  const float* row = sweep.line.x + left * k;
  const float* w = sweep.line.w + sweep.line.first * S * block;
  // One image row into the output rows [begin, end); w is at the taps with which the first of all meets it.
  const auto add_row = [&](auto first_row, auto last_row) HWY_ATTR {
    constexpr int begin = decltype(first_row)::value, end = decltype(last_row)::value;
    V tap[Rows][S];
    HWY_UNROLL(2)
    for (int o = begin; o < end; ++o) {
      HWY_UNROLL(8)
      for (int s = 0; s < S; ++s) tap[o][s] = load<part>(d, lanes, w + (s - o * stride_h * S) * block);
    }
    const float* at = row;
    std::int64_t column = left;
    HWY_UNROLL(32)
    for (int j = 0; j < columns; ++j, at += step * k, column += step) {
      if (!whole && static_cast<std::uint64_t>(column) >= static_cast<std::uint64_t>(width)) continue;
      const V in = load<part>(d, lanes, at);
      HWY_UNROLL(2)
      for (int o = begin; o < end; ++o) {
        HWY_UNROLL(8)
        for (int i = 0; i < Px; ++i) {
          const int s = j - i * Stride;
          if (s >= 0 && s < S) acc[o][i] = hn::MulAdd(in, tap[o][s], acc[o][i]);
        }
      }
    }
  };
  using Zero = std::integral_constant<int, 0>;
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  for (std::int64_t i = 0, r = sweep.line.first; i < rows; ++i, ++r, row += x_row, w += S * block) {
    if constexpr (Rows == 1) {
      add_row(Zero(), One());
    } else if (r >= taps_h) {
      add_row(One(), Two());
    } else if (r < stride_h) {
      add_row(Zero(), One());
    } else {
      add_row(Zero(), Two());
    }
  }
  const float* residual = sweep.line.residual == nullptr ? nullptr : sweep.line.residual + q * k;
  float* y = sweep.line.y + q * k;
  const std::int64_t y_row = sweep.line.y_row;
  HWY_UNROLL(2)
  for (int o = 0; o < Rows; ++o) {
    if (residual != nullptr) {
      HWY_UNROLL(8)
      for (int i = 0; i < Px; ++i)
        acc[o][i] = hn::Add(acc[o][i], load<part>(d, lanes, residual + i * step * k + o * y_row));
    }
    HWY_UNROLL(8)
    for (int i = 0; i < Px; ++i)
      store<part>(d, lanes, at_most(sweep.high, at_least(sweep.low, acc[o][i])), y + i * step * k + o * y_row);
  }
}

/// With dilation (then stride 1) every so many pixels are a line of their own, which is not dilated. The last block of
/// a line begins early enough to be whole: what it computes twice comes out the same.
template <int S, int Stride, int Rows, bool part, class D>
HWY_INLINE void sweep_line(D d, const Sweep<D>& sweep, const ConvProblem& problem) {
  constexpr int wide = Rows == 1 ? most : most_of_two_rows;
  const std::int64_t step = problem.dilation_w;
  for (std::int64_t begin = 0; begin < std::min(step, problem.q); ++begin) {
    const std::int64_t count = (problem.q - begin + step - 1) / step;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t rest = count - done;
      // Not where the residual may be y itself: it would be added twice.
      const std::int64_t reach = sweep.line.residual == nullptr ? count : rest;
      const int width = rest > few && reach >= wide ? wide : rest > 1 && reach >= few ? few : 1;
      const std::int64_t first = std::min(done, count - width), q = begin + first * step;
      const std::int64_t left = q * Stride - problem.pad_left;
      const bool inside = left >= 0 && left + ((width - 1) * Stride + S - 1) * step < problem.w;
      if (width == 1)
        pixel_block<S, Stride, 1, Rows, false, part>(d, sweep, q, left, step);
      else if (width == wide && inside)
        pixel_block<S, Stride, wide, Rows, true, part>(d, sweep, q, left, step);
      else if (width == wide)
        pixel_block<S, Stride, wide, Rows, false, part>(d, sweep, q, left, step);
      else
        pixel_block<S, Stride, few, Rows, false, part>(d, sweep, q, left, step);
      done = first + width;
    }
  }
}

/// Any filter, one row, pixel by pixel: taps [first, last) of a row lie inside the image.
void any_line(const DepthwiseLine& line, const ConvProblem& problem, const FusedClamp& clamp) {
  for (std::int64_t q = 0; q < problem.q; ++q) {
    const std::int64_t left = q * problem.stride_w - problem.pad_left;
    const std::int64_t dilation = problem.dilation_w;
    const std::int64_t first = left >= 0 ? 0 : std::min(problem.s, (-left + dilation - 1) / dilation);
    const std::int64_t last = left >= problem.w ? first : std::min(problem.s, (problem.w - 1 - left) / dilation + 1);
    const auto body = [&](auto d, std::int64_t c) HWY_ATTR {
      auto acc = line.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, line.bias + c);
      for (std::int64_t i = 0; i < line.x_rows; ++i) {
        const float* HWY_RESTRICT w = line.w + (line.first + i) * problem.s * line.block + c;
        for (std::int64_t s = first; s < last; ++s)
          acc = hn::MulAdd(hn::LoadU(d, line.x + (i * line.x_row + (left + s * dilation) * line.k + c)),
                           hn::LoadU(d, w + s * line.block), acc);
      }
      if (line.residual != nullptr) acc = hn::Add(acc, hn::LoadU(d, line.residual + q * line.k + c));
      hn::StoreU(at_most(hn::Set(d, clamp.high), at_least(hn::Set(d, clamp.low), acc)), d, line.y + q * line.k + c);
    };
    over_channels(hn::ScalableTag<float>(), 0, line.block, body);
  }
}

/// One vector of channels, from channel c of the block on.
template <int S, int Stride, int Rows, bool part, class D>
void sweep_vector(D d, const DepthwiseLine& line, const ConvProblem& problem, const FusedClamp& clamp, std::int64_t c) {
  const auto lanes = hn::FirstN(d, static_cast<std::size_t>(line.block - c));
  Sweep<D> sweep{.line = line,
                 .width = problem.w,
                 .taps_h = problem.r,
                 .stride_h = problem.stride_h,
                 .start = line.bias == nullptr ? hn::Zero(d) : load<part>(d, lanes, line.bias + c),
                 .low = hn::Set(d, clamp.low),
                 .high = hn::Set(d, clamp.high),
                 .lanes = lanes};
  sweep.line.x += c;
  sweep.line.w += c;
  if (line.residual != nullptr) sweep.line.residual += c;
  sweep.line.y += c;
  sweep_line<S, Stride, Rows, part>(d, sweep, problem);
}

/// Channels outermost: what a line costs besides its products is paid once a vector.
template <int S, int Stride, int Rows>
void line_of(const DepthwiseLine& line, const ConvProblem& problem, const FusedClamp& clamp) {
  const hn::ScalableTag<float> whole;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(whole));
  std::int64_t c = 0;
  for (; c + lanes <= line.block; c += lanes) sweep_vector<S, Stride, Rows, false>(whole, line, problem, clamp, c);
  if (c == line.block) return;
  if constexpr (masked)
    sweep_vector<S, Stride, Rows, true>(whole, line, problem, clamp, c);
  else
    over_channels(whole, c, line.block, [&](auto d, std::int64_t at) HWY_ATTR {
      sweep_vector<S, Stride, Rows, false>(d, line, problem, clamp, at);
    });
}

/// Activations that are no clamp: over what was just stored, a vector of channels pixel after pixel.
void activate(const DepthwiseLine& line, const ConvProblem& problem) {
  with_activation(problem.activation, [&](auto act) HWY_ATTR {
    over_channels(hn::ScalableTag<float>(), 0, line.block, [&](auto d, std::int64_t c) HWY_ATTR {
      for (int o = 0; o < line.y_rows; ++o) {
        float* at = line.y + o * line.y_row + c;
        for (std::int64_t q = 0; q < problem.q; ++q, at += line.k) hn::StoreU(act(d, hn::LoadU(d, at)), d, at);
      }
    });
  });
}

void depthwise_line(const DepthwiseLine& line, const ConvProblem& problem) {
  const FusedClamp clamp(problem.activation);
  const bool even = problem.stride_w == 1, halved = problem.stride_w == 2 && problem.dilation_w == 1;
  const bool two = line.y_rows == 2;
  if (even && problem.s == 3)
    two ? line_of<3, 1, 2>(line, problem, clamp) : line_of<3, 1, 1>(line, problem, clamp);
  else if (halved && problem.s == 3)
    two ? line_of<3, 2, 2>(line, problem, clamp) : line_of<3, 2, 1>(line, problem, clamp);
  else if (even && problem.s == 5)
    two ? line_of<5, 1, 2>(line, problem, clamp) : line_of<5, 1, 1>(line, problem, clamp);
  else if (halved && problem.s == 5)
    two ? line_of<5, 2, 2>(line, problem, clamp) : line_of<5, 2, 1>(line, problem, clamp);
  else if (even && problem.s == 7)
    two ? line_of<7, 1, 2>(line, problem, clamp) : line_of<7, 1, 1>(line, problem, clamp);
  else
    any_line(line, problem, clamp);

  if (clamp.after) activate(line, problem);
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

class BoundDepthwise final : public BoundRowConv {
 public:
  BoundDepthwise(const ConvProblem& p, int threads)
      : BoundRowConv(p, static_cast<std::size_t>(repeated_floats(p) * threads) * sizeof(float)),
        block_(channel_block(p)) {}

 private:
  void compute(const ConvRun& run) const override {
    const std::int64_t at_once = pairs() ? 2 : 1;
    const std::int64_t blocks = (problem.k + block_ - 1) / block_, lines = (problem.p + at_once - 1) / at_once;
    const std::int64_t line_work = at_once * problem.q * block_ * problem.r * problem.s;
    // Pieces of 8 us and more; fewer lines in a piece where there are few lines, as at 7x7.
    const std::int64_t grain = std::max<std::int64_t>(1, (256 << 10) / std::max<std::int64_t>(line_work, 1));
    auto* scratch = reinterpret_cast<float*>(run.workspace.data());

    // Rows innermost: the next one reads most of the same image rows.
    run.pool->parallel_for(problem.n * blocks * lines, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t p = i % lines * at_once;
        const std::int64_t c = i / lines % blocks * block_;
        const std::int64_t n = i / lines / blocks;
        const ImageRows rows{n, {0, problem.p}, image_of(run.x, x_shape(), n), image_of(run.y, y_shape(), n)};
        compute_line(run, rows, p, std::min(at_once, problem.p - p), c, scratch + worker * repeated_floats(problem));
      }
    });
  }

  bool has_rows() const override { return multiplier(problem) == 1; }
  void compute_rows(const ConvRun& run, const ImageRows& rows) const override {
    const std::int64_t at_once = pairs() ? 2 : 1;
    for (std::int64_t c = 0; c < problem.k; c += block_)
      for (std::int64_t p = rows.rows.begin; p < rows.rows.end; p += at_once)
        compute_line(run, rows, p, std::min(at_once, rows.rows.end - p), c, nullptr);
  }

  /// Are output rows p and p + 1 computed together, their inputs loaded once?
  bool pairs() const {
    const bool even = problem.stride_h == 1 && problem.stride_w == 1 && problem.dilation_h == 1 &&
                      (problem.s == 3 || problem.s == 5 || problem.s == 7);
    const bool halved = problem.stride_h == 2 && problem.stride_w == 2 && problem.dilation_h == 1 &&
                        problem.dilation_w == 1 && (problem.s == 3 || problem.s == 5);
    return (even || halved) && problem.r > problem.stride_h && multiplier(problem) == 1;
  }

  /// Row p of the output, or `count` = 2 from there on, over the block of channels that begins with `c`.
  void compute_line(const ConvRun& run, const ImageRows& at, std::int64_t p, std::int64_t count, std::int64_t c,
                    float* repeated) const {
    const std::int64_t taps = problem.r * problem.s, dilation = problem.dilation_h;
    const std::int64_t top = p * problem.stride_h - problem.pad_top;
    // Of the rows below the windows those inside the image.
    const std::int64_t rows = problem.r + (count - 1) * problem.stride_h;
    const std::int64_t first = top >= 0 ? 0 : std::min(rows, (-top + dilation - 1) / dilation);
    const std::int64_t last =
        top >= problem.h ? first : std::max(first, std::min(rows, (problem.h - 1 - top) / dilation + 1));

    DepthwiseLine line;
    line.k = problem.k;
    line.block = std::min(block_, problem.k - c);
    line.first = first;
    line.x_rows = last - first;
    line.w = run.filter + c * taps;
    if (p == at.rows.begin) fetch(line.w + line.block * taps, std::min(block_, problem.k - c - line.block) * taps);
    // Of no rows nothing is read: any address that may be moved about will do.
    const float* const x = line.x_rows == 0 ? line.w : at.x.at(top + first * dilation);
    if (multiplier(problem) == 1) {
      line.x = x + c;
      line.x_row = dilation * at.x.row_floats;
    } else {
      for (std::int64_t r = 0; r < line.x_rows; ++r)
        repeat_channels(x + r * dilation * at.x.row_floats, repeated + r * problem.w * problem.k, at.x.row_floats,
                        multiplier(problem));
      line.x = repeated;
      line.x_row = problem.w * problem.k;
    }
    line.bias = run.bias == nullptr ? nullptr : run.bias + c;
    line.residual =
        run.residual == nullptr ? nullptr : run.residual + (at.image * problem.p + p) * problem.q * problem.k + c;
    line.y = at.y.at(p) + c;
    line.y_rows = static_cast<int>(count);
    line.y_row = problem.q * problem.k;
    HWY_DYNAMIC_DISPATCH(depthwise_line)(line, problem);
  }

  /// The next block's filters, which come from memory, meanwhile.
  static void fetch(const float* filters, std::int64_t floats) {
    for (std::int64_t i = 0; i < floats; i += 16) __builtin_prefetch(filters + i, 0, 2);
  }

  static void repeat_channels(const float* from, float* to, std::int64_t count, std::int64_t times) {
    for (std::int64_t i = 0; i < count; ++i) to = std::fill_n(to, times, from[i]);
  }

  const std::int64_t block_;
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
