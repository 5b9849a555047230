#include "ops/normalization/softmax_kernels.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/normalization/softmax_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/sum-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

/// e^x for x <= 0; 0 below 2^-122. Subnormal numbers, here and in what reads the result, take 20 times as long.
template <class Tag, class Vec = hn::Vec<Tag>>
HWY_INLINE Vec exp_or_zero(Tag tag, Vec x) {
  const Vec least = hn::Set(tag, -84.56F);
  const auto small = hn::Lt(x, least);
  return hn::IfThenZeroElse(small, exp_f32(tag, hn::IfThenElse(small, least, x)));
}

void row_kernel(const float* x, float* y, std::int64_t n, bool log) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V tops[4];
  for (V& most : tops) most = hn::Set(d, x[0]);
  std::int64_t at = 0;
  for (; at + 4 * lanes <= n; at += 4 * lanes)
    for (std::int64_t k = 0; k < 4; ++k) tops[k] = hn::Max(tops[k], hn::LoadU(d, x + at + k * lanes));
  for (; at + lanes <= n; at += lanes) tops[0] = hn::Max(tops[0], hn::LoadU(d, x + at));
  float top = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]))));
  for (; at < n; ++at) top = std::max(top, x[at]);
  if (log) {
    const double sum = sum_f32(d, x, n, [top](auto tag, auto v, std::int64_t) HWY_ATTR {
      return exp_or_zero(tag, hn::Sub(v, hn::Set(tag, top)));
    });
    const auto shift = static_cast<float>(std::log(sum));
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, top)), hn::Set(d, shift)), d, y + i);
    for (; i < n; ++i) y[i] = (x[i] - top) - shift;
    return;
  }
  const double sum = sum_f32(d, x, n, [top, y](auto tag, auto v, std::int64_t i) HWY_ATTR {
    const auto e = exp_or_zero(tag, hn::Sub(v, hn::Set(tag, top)));
    hn::StoreU(e, tag, y + i);
    return e;
  });
  const auto scale = static_cast<float>(1.0 / sum);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, scale)), d, y + i);
  for (; i < n; ++i) hn::StoreU(hn::Mul(hn::LoadU(one, y + i), hn::Set(one, scale)), one, y + i);
}

void columns_kernel(const float* x, float* y, std::int64_t length, std::int64_t stride, std::int64_t count, bool log) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto column = [&](auto tag, std::int64_t j) HWY_ATTR {
    auto top = hn::LoadU(tag, x + j);
    for (std::int64_t i = 1; i < length; ++i) top = hn::Max(top, hn::LoadU(tag, x + i * stride + j));
    auto sum = hn::Zero(tag);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto e = exp_or_zero(tag, hn::Sub(hn::LoadU(tag, x + i * stride + j), top));
      if (!log) hn::StoreU(e, tag, y + i * stride + j);
      sum = hn::Add(sum, e);
    }
    if (log) {
      HWY_ALIGN float shift[HWY_MAX_BYTES / sizeof(float)];
      hn::StoreU(sum, tag, shift);
      for (std::size_t k = 0; k < hn::Lanes(tag); ++k) shift[k] = std::log(shift[k]);
      const auto logs = hn::LoadU(tag, shift);
      for (std::int64_t i = 0; i < length; ++i)
        hn::StoreU(hn::Sub(hn::Sub(hn::LoadU(tag, x + i * stride + j), top), logs), tag, y + i * stride + j);
    } else {
      for (std::int64_t i = 0; i < length; ++i)
        hn::StoreU(hn::Div(hn::LoadU(tag, y + i * stride + j), sum), tag, y + i * stride + j);
    }
  };
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) column(d, j);
  for (; j < count; ++j) column(one, j);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(row_kernel);
HWY_EXPORT(columns_kernel);

void softmax_row(const float* x, float* y, std::int64_t length, bool log) {
  HWY_DYNAMIC_DISPATCH(row_kernel)(x, y, length, log);
}

void softmax_columns(const float* x, float* y, std::int64_t length, std::int64_t stride, std::int64_t count, bool log) {
  HWY_DYNAMIC_DISPATCH(columns_kernel)(x, y, length, stride, count, log);
}

}  // namespace lenslet
#endif
