#include "ops/pool/pool_kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/pool_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/bounds-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
constexpr float lowest = -std::numeric_limits<float>::infinity();

// NaN when either is.
struct MaxFold {
  static constexpr float start = lowest;
  template <class Tag, class V>
  static HWY_INLINE V first(Tag, V v) {
    return v;
  }
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (max_shows_nan) return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
  }
};
struct SumFold {
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

// What is folded of an element, and what a window's fold ends as.
template <class Fold, class V>
HWY_INLINE V term(const Fold&, V x) {
  if constexpr (std::is_same_v<Fold, NormFold<1>>) return hn::Abs(x);
  if constexpr (std::is_same_v<Fold, NormFold<2>>) return hn::Mul(x, x);
  return x;
}
template <class Tag, class Fold, class V>
HWY_INLINE V finish(Tag tag, const Fold&, V total, float divide) {
  if constexpr (std::is_same_v<Fold, NormFold<2>>) return hn::Sqrt(total);
  return divide == 1.0f ? total : hn::Div(total, hn::Set(tag, divide));
}

// What a window's fold is divided by; the average of a window without any tap is 0.
HWY_INLINE float divisor(PoolKind kind, const PoolTaps& h, const PoolTaps& w) {
  if (kind == PoolKind::max || kind == PoolKind::lp) return 1;
  const std::int64_t count = kind == PoolKind::average ? h.count * w.count : h.padded * w.padded;
  return count == 0 ? 1.0f : static_cast<float>(count);
}

template <class Tag, class Fold>
HWY_INLINE void window_nhwc(Tag tag, const Fold& fold, const PoolProblem& p, const float* x, const PoolTaps& h,
                            const PoolTaps& w, float divide, float* y) {
  const std::int64_t line = p.axes[2].in * p.c * p.axes[1].dilation, step = p.c * p.axes[2].dilation;
  auto total = hn::Set(tag, Fold::start);
  for (std::int64_t r = 0; r < h.count && w.count > 0; ++r) {
    const float* at = x + r * line;
    auto partial = Fold::first(tag, term(fold, hn::LoadU(tag, at)));
    for (std::int64_t s = 1; s < w.count; ++s) partial = fold(partial, term(fold, hn::LoadU(tag, at + s * step)));
    total = r == 0 ? partial : fold(total, partial);
  }
  hn::StoreU(finish(tag, fold, total, divide), tag, y);
}

template <class Fold>
HWY_INLINE void line_nhwc(const Fold& fold, PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line,
                          float* y) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const PoolTaps h = p.axes[1].taps(line);
  for (std::int64_t q = 0; q < p.axes[2].out; ++q) {
    const PoolTaps w = p.axes[2].taps(q);
    const float divide = divisor(kind, h, w);
    // Without taps `first` may lie outside the image: nothing is read then.
    const bool empty = h.count == 0 || w.count == 0;
    const float* window = empty ? x : x + (h.first * p.axes[2].in + w.first) * p.c;
    float* out = y + q * p.c;
    std::int64_t c = 0;
    for (; c + lanes <= p.c; c += lanes) window_nhwc(d, fold, p, window + c, h, w, divide, out + c);
    for (; c < p.c; ++c) window_nhwc(one, fold, p, window + c, h, w, divide, out + c);
  }
}

// First the lines of the window into one, along the vector; then the taps within it, one output at a time.
template <class Fold>
HWY_INLINE void line_nchw(const Fold& fold, PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line,
                          float* scratch, float* y) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = p.axes[2].in;
  const PoolTaps h = p.axes[1].taps(line);
  const auto column = [&](auto tag, std::int64_t j) HWY_ATTR {
    auto total = hn::Set(tag, Fold::start);
    for (std::int64_t r = 0; r < h.count; ++r)
      total = fold(total, term(fold, hn::LoadU(tag, x + (h.first + r * p.axes[1].dilation) * width + j)));
    hn::StoreU(total, tag, scratch + j);
  };
  std::int64_t j = 0;
  for (; j + lanes <= width; j += lanes) column(d, j);
  for (; j < width; ++j) column(one, j);
  for (std::int64_t q = 0; q < p.axes[2].out; ++q) {
    const PoolTaps w = p.axes[2].taps(q);
    auto total = hn::Set(one, Fold::start);
    for (std::int64_t s = 0; s < w.count; ++s)
      total = fold(total, hn::LoadU(one, scratch + w.first + s * p.axes[2].dilation));
    y[q] = hn::GetLane(finish(one, fold, total, divisor(kind, h, w)));
  }
}

void pool_nhwc_kernel(PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line, float* y) {
  if (kind == PoolKind::max) return line_nhwc(MaxFold{}, kind, p, x, line, y);
  if (kind != PoolKind::lp) return line_nhwc(SumFold{}, kind, p, x, line, y);
  if (p.norm == 1) return line_nhwc(NormFold<1>{}, kind, p, x, line, y);
  line_nhwc(NormFold<2>{}, kind, p, x, line, y);
}

void pool_nchw_kernel(PoolKind kind, const PoolProblem& p, const float* x, std::int64_t line, float* scratch,
                      float* y) {
  if (kind == PoolKind::max) return line_nchw(MaxFold{}, kind, p, x, line, scratch, y);
  if (kind != PoolKind::lp) return line_nchw(SumFold{}, kind, p, x, line, scratch, y);
  if (p.norm == 1) return line_nchw(NormFold<1>{}, kind, p, x, line, scratch, y);
  line_nchw(NormFold<2>{}, kind, p, x, line, scratch, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(pool_nhwc_kernel);
HWY_EXPORT(pool_nchw_kernel);

void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y) {
  HWY_DYNAMIC_DISPATCH(pool_nhwc_kernel)(kind, problem, x, line, y);
}

void pool_line_nchw(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* scratch,
                    float* y) {
  HWY_DYNAMIC_DISPATCH(pool_nchw_kernel)(kind, problem, x, line, scratch, y);
}

}  // namespace lenslet
#endif
