#include "ops/normalization/row_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/normalization/row_sums.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of term(x[i]), a function of double vectors. Four accumulators hide the addition's latency.
template <class Term>
HWY_INLINE double sum(const float* x, std::int64_t count, const Term& term) {
  const hn::ScalableTag<double> d;
  const hn::CappedTag<double, 1> one;
  const auto at = [&](auto tag, std::int64_t i)
                      HWY_ATTR { return hn::PromoteTo(tag, hn::LoadU(hn::Rebind<float, decltype(tag)>(), x + i)); };
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, term(d, at(d, i)));
    b = hn::Add(b, term(d, at(d, i + lanes)));
    c = hn::Add(c, term(d, at(d, i + 2 * lanes)));
    e = hn::Add(e, term(d, at(d, i + 3 * lanes)));
  }
  for (; i + lanes <= count; i += lanes) a = hn::Add(a, term(d, at(d, i)));
  double rest = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < count; ++i) rest += hn::GetLane(term(one, at(one, i)));
  return rest;
}

double row_sum_kernel(const float* x, std::int64_t count) {
  return sum(x, count, [](auto, auto v) HWY_ATTR { return v; });
}

double row_magnitudes_kernel(const float* x, std::int64_t count) {
  return sum(x, count, [](auto, auto v) HWY_ATTR { return hn::Abs(v); });
}

double row_squares_kernel(const float* x, std::int64_t count, double center) {
  return sum(x, count, [center](auto tag, auto v) HWY_ATTR {
    const auto distance = hn::Sub(v, hn::Set(tag, center));
    return hn::Mul(distance, distance);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(row_sum_kernel);
HWY_EXPORT(row_magnitudes_kernel);
HWY_EXPORT(row_squares_kernel);

double row_sum(const float* x, std::int64_t count) { return HWY_DYNAMIC_DISPATCH(row_sum_kernel)(x, count); }

double row_magnitudes(const float* x, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(row_magnitudes_kernel)(x, count);
}

double row_squares(const float* x, std::int64_t count, double center) {
  return HWY_DYNAMIC_DISPATCH(row_squares_kernel)(x, count, center);
}

}  // namespace lenslet
#endif
