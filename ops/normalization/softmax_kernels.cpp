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
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Four sums side by side keep the error of long rows small and the adders busy.
template <class F>
HWY_INLINE double sum_of(const float* x, std::int64_t n, const F& f) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes)
    for (std::int64_t k = 0; k < 4; ++k)
      sums[k] = hn::Add(sums[k], f(d, hn::LoadU(d, x + i + k * lanes), i + k * lanes));
  for (; i + lanes <= n; i += lanes) sums[0] = hn::Add(sums[0], f(d, hn::LoadU(d, x + i), i));
  HWY_ALIGN float parts[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), d, parts);
  double total = 0;
  for (std::int64_t k = 0; k < lanes; ++k) total += static_cast<double>(parts[k]);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) total += static_cast<double>(hn::GetLane(f(one, hn::LoadU(one, x + i), i)));
  return total;
}

void row_kernel(const float* x, float* y, std::int64_t n, bool log) {
  const D d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V tops = hn::Set(d, x[0]);
  std::int64_t at = 0;
  for (; at + lanes <= n; at += lanes) tops = hn::Max(tops, hn::LoadU(d, x + at));
  float top = hn::GetLane(hn::MaxOfLanes(d, tops));
  for (; at < n; ++at) top = std::max(top, x[at]);
  if (log) {
    const double sum = sum_of(
        x, n, [top](auto tag, auto v, std::int64_t) HWY_ATTR { return exp_f32(tag, hn::Sub(v, hn::Set(tag, top))); });
    const auto shift = static_cast<float>(std::log(sum));
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - top) - shift;
    return;
  }
  const double sum = sum_of(x, n, [top, y](auto tag, auto v, std::int64_t i) HWY_ATTR {
    const auto e = exp_f32(tag, hn::Sub(v, hn::Set(tag, top)));
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
      const auto e = exp_f32(tag, hn::Sub(hn::LoadU(tag, x + i * stride + j), top));
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
