#include "ops/pool/pool_kernels.h"

#include <algorithm>
#include <type_traits>

#include "ops/reduce/fold.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/pool_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/cache_control.h"
#include "base/simd/bf16-inl.h"
#include "ops/core/simd/bounds-inl.h"
#include "ops/core/simd/over_channels-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;

// NaN if either is.
template <typename T>
struct MaxFold {
  using Element = T;
  static constexpr T start = reduce::least_value<T>;
  template <class Tag, class V>
  static HWY_INLINE V first(Tag, V v) {
    return v;
  }
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_same_v<T, float>)
      return larger(a, b);
    else
      return hn::Max(a, b);
  }
};
struct SumFold {
  using Element = float;
  static constexpr float start = 0;
  template <class Tag, class V>
  static HWY_INLINE V first(Tag tag, V v) {
    return hn::Add(hn::Zero(tag), v);
  }
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
template <int p>
struct NormFold : SumFold {};
/// A sum whose average is followed by PoolDifferenceLine.
template <typename T>
struct DifferenceFold : SumFold {
  PoolDifferenceLine<T> line;
};

// The term of an element, and the result of a window's fold.
template <class Fold, class V>
HWY_INLINE V term(const Fold&, V x) {
  if constexpr (std::is_same_v<Fold, NormFold<1>>) return hn::Abs(x);
  if constexpr (std::is_same_v<Fold, NormFold<2>>) return hn::Mul(x, x);
  return x;
}
template <class Tag, class Fold, class V>
HWY_INLINE V finish([[maybe_unused]] Tag tag, const Fold&, V total, [[maybe_unused]] float divide) {
  if constexpr (std::is_same_v<Fold, MaxFold<hn::TFromD<Tag>>>)
    return total;
  else if constexpr (std::is_same_v<Fold, NormFold<2>>)
    return hn::Sqrt(total);
  else
    return divide == 1.0f ? total : hn::Div(total, hn::Set(tag, divide));
}

// What is stored for the result of column `q` and the channels from `c` on.
template <class Tag, class Fold, class V>
HWY_INLINE V followed(Tag, const Fold&, V result, const PoolPixels&, std::int64_t, std::int64_t) {
  return result;
}
template <class Tag, typename T, class V>
HWY_INLINE V followed(Tag tag, const DifferenceFold<T>& fold, V result, const PoolPixels& pixel, std::int64_t q,
                      std::int64_t c) {
  const PoolDifferenceLine<T>& line = fold.line;
  result = hn::Sub(result, load(tag, line.center + q * pixel.x + c));
  if (line.scale != nullptr) result = hn::Mul(result, hn::LoadU(tag, line.scale + c));
  if (line.residual != nullptr) result = hn::Add(load(tag, line.residual + q * pixel.residual + c), result);
  return result;
}

// The divisor of a window's fold; the average of a window without taps is 0.
HWY_INLINE float divisor(PoolKind kind, const PoolTaps& h, const PoolTaps& w) {
  if (kind == PoolKind::max || kind == PoolKind::lp) return 1;
  const std::int64_t count = kind == PoolKind::average ? h.count * w.count : h.padded * w.padded;
  return count == 0 ? 1.0f : static_cast<float>(count);
}

template <class Tag, class Fold, typename T>
HWY_INLINE hn::Vec<Tag> window_nhwc(Tag tag, const Fold& fold, const PoolProblem& p, std::int64_t pixel, const T* x,
                                    const PoolTaps& h, const PoolTaps& w, float divide) {
  const std::int64_t line = p.axes[2].in * pixel * p.axes[1].dilation, step = pixel * p.axes[2].dilation;
  auto total = hn::Set(tag, Fold::start);
  for (std::int64_t r = 0; r < h.count && w.count > 0; ++r) {
    const T* at = x + r * line;
    auto partial = Fold::first(tag, term(fold, load(tag, at)));
    for (std::int64_t s = 1; s < w.count; ++s) partial = fold(partial, term(fold, load(tag, at + s * step)));
    total = r == 0 ? partial : fold(total, partial);
  }
  return finish(tag, fold, total, divide);
}

// `total` of windows with counts[i] taps in each of `lines` lines; the average of a window without taps is 0.
template <class Tag, class Fold, class V>
HWY_INLINE V finish_line(Tag tag, const Fold& fold, V total, float lines, const float* counts) {
  if constexpr (std::is_same_v<Fold, SumFold>)
    return hn::Div(total, hn::Max(hn::Set(tag, 1.0f), hn::Mul(hn::Set(tag, lines), hn::LoadU(tag, counts))));
  return finish(tag, fold, total, 1);
}

template <class Tag>
constexpr bool is_one = hn::MaxLanes(Tag()) == 1;

/// Calls f(tag, i) for vectors that cover [0, count) exactly; the last one may overlap the previous one.
template <class Tag, class F>
HWY_INLINE void over_line(Tag tag, std::int64_t count, const F& f) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  if (count >= lanes) {
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) f(tag, i);
    if (i < count) f(tag, count - lanes);
  } else if constexpr (!is_one<Tag>) {
    constexpr std::size_t most = hn::MaxLanes(Tag());
    over_line(hn::CappedTag<hn::TFromD<Tag>, (most > 4 ? most / 2 : 1)>(), count, f);
  }
}

template <class Fold, typename T>
HWY_INLINE void line_nhwc(const Fold& fold, PoolKind kind, const PoolProblem& p, const T* x, std::int64_t line, T* y,
                          const PoolPixels& pixel) {
  const PoolTaps h = p.axes[1].taps(line);
  for (std::int64_t q = 0; q < p.axes[2].out; ++q) {
    const PoolTaps w = p.axes[2].taps(q);
    const float divide = divisor(kind, h, w);
    // Without taps `first` may lie outside of the image: nothing is read.
    const bool empty = h.count == 0 || w.count == 0;
    const T* window = empty ? x : x + w.first * pixel.x;
    T* out = y + q * pixel.y;
    const auto channels = [&](auto tag, std::int64_t c) HWY_ATTR {
      const auto result = window_nhwc(tag, fold, p, pixel.x, window + c, h, w, divide);
      store(followed(tag, fold, result, pixel, q, c), tag, out + c);
    };
    if constexpr (std::is_same_v<typename Fold::Element, float>)
      over_channels(D(), 0, p.c, channels);
    else
      over_line(hn::ScalableTag<T>(), p.c, channels);
  }
}

/// Loads at[0], at[stride] ...; reads up to a vector beyond the last one.
template <class Tag, typename T>
HWY_INLINE hn::Vec<Tag> load_strided(Tag tag, const T* at, [[maybe_unused]] std::int64_t stride) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!is_one<Tag>) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(tag));
    if (stride == 2) return hn::ConcatEven(tag, hn::LoadU(tag, at + lanes), hn::LoadU(tag, at));
    if (stride != 1) {
      if constexpr (sizeof(T) == 4) {
        const hn::RebindToSigned<Tag> index;
        return hn::GatherIndex(tag, at, hn::Mul(hn::Iota(index, 0), hn::Set(index, static_cast<std::int32_t>(stride))));
      }
      HWY_ALIGN T gathered[hn::MaxLanes(Tag())];
      for (std::int64_t i = 0; i < lanes; ++i) gathered[i] = at[i * stride];
      return hn::Load(tag, gathered);
    }
  }
#endif
  return hn::LoadU(tag, at);
}

/// Folds columns [from, to) over the window's lines.
template <class Fold, typename T = typename Fold::Element>
HWY_INLINE void fold_columns(const Fold& fold, const PoolProblem& p, const T* plane, const PoolTaps& deep,
                             const PoolTaps& high, std::int64_t from, std::int64_t to, T* folded) {
  const PoolAxis &d = p.axes[0], &h = p.axes[1], &w = p.axes[2];
  if (deep.count == 0 || high.count == 0) return std::fill(folded, folded + (to - from), Fold::start);
  const T* const first = plane + (deep.first * h.in + high.first) * w.in + from;
  const std::int64_t slice = d.dilation * h.in * w.in, line = h.dilation * w.in;
  // Hardware prefetchers lose several lines at a time: 1.8 times the speed for 2x2 windows from memory. If only one
  // line is new they do better alone.
  const std::int64_t fresh = h.stride == 1 && deep.count == 1 ? 0 : std::min(h.stride, high.count);
  const std::int64_t ahead =
      line * high.count +
      (4096 / static_cast<std::int64_t>(sizeof(T)) / std::max<std::int64_t>(1, h.stride * w.in) + 1) * h.stride * w.in;
  over_line(hn::ScalableTag<T>(), to - from, [&](auto tag, std::int64_t j) HWY_ATTR {
    hn::Vec<decltype(tag)> total;
    for (std::int64_t i = 0; i < deep.count; ++i) {
      const T* at = first + i * slice + j;
      for (std::int64_t r = 0; r < fresh; ++r) hwy::Prefetch(at + ahead + r * line);
      auto partial = Fold::first(tag, term(fold, hn::LoadU(tag, at)));
      for (std::int64_t r = 1; r < high.count; ++r) partial = fold(partial, term(fold, hn::LoadU(tag, at + r * line)));
      total = i == 0 ? partial : fold(total, partial);
    }
    hn::StoreU(total, tag, folded + j);
  });
}

/// A line of 2x2 windows of stride 2 inside the image; `top` is the first of its two lines.
template <class Fold, typename T = typename Fold::Element>
HWY_INLINE void line_of_pairs(const Fold& fold, const PoolLines& plan, const T* top, T* y) {
  const PoolAxis& w = plan.problem.axes[2];
  over_line(hn::ScalableTag<T>(), w.out, [&](auto tag, std::int64_t i) HWY_ATTR {
    const auto columns = [&](const T* at) HWY_ATTR {
      return fold(Fold::first(tag, term(fold, hn::LoadU(tag, at))), term(fold, hn::LoadU(tag, at + w.in)));
    };
    auto even = columns(top + 2 * i), odd = columns(top + 2 * i + static_cast<std::int64_t>(hn::Lanes(tag)));
#if HWY_TARGET != HWY_SCALAR
    if constexpr (!is_one<decltype(tag)>) {
      const auto low = even;
      even = hn::ConcatEven(tag, odd, low);
      odd = hn::ConcatOdd(tag, odd, low);
    }
#endif
    hn::StoreU(finish_line(tag, fold, fold(even, odd), 2, plan.counts.data() + i), tag, y + i);
  });
}

template <class Fold, typename T = typename Fold::Element>
HWY_INLINE void lines_nchw(const Fold& fold, const PoolLines& plan, const T* x, std::int64_t begin, std::int64_t end,
                           T* scratch, T* y) {
  const PoolProblem& p = plan.problem;
  const PoolAxis &d = p.axes[0], &h = p.axes[1], &w = p.axes[2];
  if (plan.pairs) {
    std::int64_t row = begin % h.out;
    const T* plane = x + begin / h.out * p.in();
    for (std::int64_t line = begin; line < end; ++line) {
      line_of_pairs(fold, plan, plane + 2 * row * w.in, y + line * w.out);
      if (++row < h.out) continue;
      row = 0;
      plane += p.in();
    }
    return;
  }
  for (std::int64_t line = begin; line < end; ++line) {
    const T* const plane = x + line / h.out / d.out * p.in();
    const PoolTaps deep = d.taps(line / h.out % d.out), high = h.taps(line % h.out);
    const bool padded = plan.kind == PoolKind::average_with_pads;
    const auto counted = static_cast<float>(padded ? deep.padded * high.padded : deep.count * high.count);
    T* const out = y + line * w.out;
    if (plan.block == 0) {
      const hn::CappedTag<T, 1> one;
      fold_columns(fold, p, plane, deep, high, 0, w.in, scratch);
      for (std::int64_t q = 0; q < w.out; ++q) {
        const PoolTaps taps = w.taps(q);
        auto total = hn::Set(one, Fold::start);
        for (std::int64_t s = 0; s < taps.count; ++s)
          total = fold(total, hn::LoadU(one, scratch + taps.first + s * w.dilation));
        out[q] = hn::GetLane(finish_line(one, fold, total, counted, plan.counts.data() + q));
      }
      continue;
    }
    for (std::int64_t q = 0; q < w.out; q += plan.block) {
      const std::int64_t count = std::min(plan.block, w.out - q);
      // The columns of these windows; columns beside the image are neutral.
      const std::int64_t left = q * w.stride - w.pad_begin;
      const std::int64_t right = left + (count - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
      const std::int64_t from = std::clamp<std::int64_t>(left, 0, w.in), to = std::clamp(right, from, w.in);
      std::fill(scratch, scratch + (from - left), Fold::start);
      fold_columns(fold, p, plane, deep, high, from, to, scratch + (from - left));
      std::fill(scratch + (to - left), scratch + (right - left), Fold::start);
      over_line(hn::ScalableTag<T>(), count, [&](auto tag, std::int64_t i) HWY_ATTR {
        const T* const at = scratch + i * w.stride;
        auto total = load_strided(tag, at, w.stride);
        for (std::int64_t s = 1; s < w.kernel; ++s)
          total = fold(total, load_strided(tag, at + s * w.dilation, w.stride));
        hn::StoreU(finish_line(tag, fold, total, counted, plan.counts.data() + q + i), tag, out + q + i);
      });
    }
  }
}

void pool_nhwc_kernel(PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line, float* y,
                      const PoolPixels& pixel) {
  if (kind == PoolKind::max) return line_nhwc(MaxFold<float>{}, kind, p, x, line, y, pixel);
  if (kind != PoolKind::lp) return line_nhwc(SumFold{}, kind, p, x, line, y, pixel);
  if (p.norm == 1) return line_nhwc(NormFold<1>{}, kind, p, x, line, y, pixel);
  line_nhwc(NormFold<2>{}, kind, p, x, line, y, pixel);
}

void pool_bf16_kernel(PoolKind kind, const PoolProblem& p, const BFloat16* x, std::int64_t line, BFloat16* y,
                      const PoolPixels& pixel) {
  if (kind == PoolKind::max) return line_nhwc(MaxFold<float>{}, kind, p, x, line, y, pixel);
  line_nhwc(SumFold{}, kind, p, x, line, y, pixel);
}

void difference_nhwc_kernel(PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line, float* y,
                            const PoolPixels& pixel, const PoolDifferenceLine<float>& difference) {
  line_nhwc(DifferenceFold<float>{{}, difference}, kind, p, x, line, y, pixel);
}
void difference_bf16_kernel(PoolKind kind, const PoolProblem& p, const BFloat16* x, std::int64_t line, BFloat16* y,
                            const PoolPixels& pixel, const PoolDifferenceLine<BFloat16>& difference) {
  line_nhwc(DifferenceFold<BFloat16>{{}, difference}, kind, p, x, line, y, pixel);
}

void subtract_kernel(const PoolDifferenceLine<float>& difference, std::int64_t count, float* y) {
  const float scale = difference.scale == nullptr ? 1.0F : *difference.scale;
  over_channels(D(), 0, count, [&](auto tag, std::int64_t i) HWY_ATTR {
    auto result = hn::Sub(hn::LoadU(tag, y + i), hn::LoadU(tag, difference.center + i));
    result = hn::Mul(result, hn::Set(tag, scale));
    if (difference.residual != nullptr) result = hn::Add(hn::LoadU(tag, difference.residual + i), result);
    hn::StoreU(result, tag, y + i);
  });
}

void pool_nchw_kernel(const PoolLines& plan, const float* x, std::int64_t begin, std::int64_t end, float* scratch,
                      float* y) {
  if (plan.kind == PoolKind::max) return lines_nchw(MaxFold<float>{}, plan, x, begin, end, scratch, y);
  if (plan.kind != PoolKind::lp) return lines_nchw(SumFold{}, plan, x, begin, end, scratch, y);
  if (plan.problem.norm == 1) return lines_nchw(NormFold<1>{}, plan, x, begin, end, scratch, y);
  lines_nchw(NormFold<2>{}, plan, x, begin, end, scratch, y);
}

void max_nhwc_kernel(const PoolProblem& p, DType dtype, const void* x, std::int64_t line, void* y,
                     const PoolPixels& pixel) {
  const auto of = [&]<typename T>(T*) HWY_ATTR {
    line_nhwc(MaxFold<T>{}, PoolKind::max, p, static_cast<const T*>(x), line, static_cast<T*>(y), pixel);
  };
  if (dtype == DType::i8) return of(static_cast<std::int8_t*>(y));
  of(static_cast<std::uint8_t*>(y));
}

template <typename T>
void max_of(const PoolLines& plan, const void* x, std::int64_t begin, std::int64_t end, void* scratch, void* y) {
  lines_nchw(MaxFold<T>{}, plan, static_cast<const T*>(x), begin, end, static_cast<T*>(scratch), static_cast<T*>(y));
}
void max_kernel(const PoolLines& plan, DType dtype, const void* x, std::int64_t begin, std::int64_t end, void* scratch,
                void* y) {
  if (dtype == DType::i8) return max_of<std::int8_t>(plan, x, begin, end, scratch, y);
  max_of<std::uint8_t>(plan, x, begin, end, scratch, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(pool_nhwc_kernel);
HWY_EXPORT(pool_bf16_kernel);
HWY_EXPORT(difference_nhwc_kernel);
HWY_EXPORT(difference_bf16_kernel);
HWY_EXPORT(subtract_kernel);
HWY_EXPORT(pool_nchw_kernel);
HWY_EXPORT(max_kernel);
HWY_EXPORT(max_nhwc_kernel);

void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y,
                    const PoolPixels& pixel) {
  HWY_DYNAMIC_DISPATCH(pool_nhwc_kernel)(kind, problem, x, line, y, pixel);
}

void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const BFloat16* x, std::int64_t line, BFloat16* y,
                    const PoolPixels& pixel) {
  HWY_DYNAMIC_DISPATCH(pool_bf16_kernel)(kind, problem, x, line, y, pixel);
}

void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y,
                    const PoolPixels& pixel, const PoolDifferenceLine<float>& difference) {
  HWY_DYNAMIC_DISPATCH(difference_nhwc_kernel)(kind, problem, x, line, y, pixel, difference);
}

void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const BFloat16* x, std::int64_t line, BFloat16* y,
                    const PoolPixels& pixel, const PoolDifferenceLine<BFloat16>& difference) {
  HWY_DYNAMIC_DISPATCH(difference_bf16_kernel)(kind, problem, x, line, y, pixel, difference);
}

void subtract_pool_input(const PoolDifferenceLine<float>& difference, std::int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(subtract_kernel)(difference, count, y);
}

void max_line_nhwc(const PoolProblem& problem, DType dtype, const void* x, std::int64_t line, void* y,
                   const PoolPixels& pixel) {
  HWY_DYNAMIC_DISPATCH(max_nhwc_kernel)(problem, dtype, x, line, y, pixel);
}

void pool_lines_nchw(const PoolLines& plan, DType dtype, const void* x, std::int64_t begin, std::int64_t end,
                     float* scratch, void* y) {
  if (dtype != DType::f32) return HWY_DYNAMIC_DISPATCH(max_kernel)(plan, dtype, x, begin, end, scratch, y);
  HWY_DYNAMIC_DISPATCH(pool_nchw_kernel)
  (plan, static_cast<const float*>(x), begin, end, scratch, static_cast<float*>(y));
}

PoolLines::PoolLines(PoolKind of, const PoolProblem& resolved) : kind(of), problem(resolved) {
  const PoolAxis& wide = problem.axes[2];
  // A few KiB, which L1 holds beside the lines; still wider windows are folded one by one.
  constexpr std::int64_t most_columns = 2048, least_outputs = 64, most_lanes = 64;
  const std::int64_t extent = (wide.kernel - 1) * wide.dilation + 1;
  scratch_floats = wide.in;
  if (extent <= most_columns / 2 && wide.stride <= most_columns / 2 / least_outputs) {
    block = std::min(wide.out, (most_columns - extent) / wide.stride / least_outputs * least_outputs);
    scratch_floats = (block - 1) * wide.stride + extent + 2 * most_lanes;
  }
  // Longer lines are bound by memory, which is prefetched elsewhere.
  constexpr std::int64_t longest_pairs = 64;
  const auto pair = [](const PoolAxis& axis) {
    return axis.kernel == 2 && axis.stride == 2 && axis.dilation == 1 && axis.pad_begin == 0 && 2 * axis.out <= axis.in;
  };
  pairs = pair(problem.axes[1]) && pair(wide) && problem.axes[0].in == 1 && problem.axes[0].out == 1 &&
          wide.out <= longest_pairs;
  // Whole cache lines, so that threads do not share one.
  scratch_floats = (scratch_floats + 15) / 16 * 16;
  for (std::int64_t q = 0; q < wide.out; ++q) {
    const PoolTaps taps = wide.taps(q);
    counts.push_back(static_cast<float>(kind == PoolKind::average_with_pads ? taps.padded : taps.count));
  }
}

}  // namespace lenslet
#endif
