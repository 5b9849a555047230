// Sums of a function over contiguous floats. Included by files that Highway compiles once per instruction set: the
// guard toggles, so that each target sees it once.
#if defined(LENSLET_OPS_SIMD_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_SUM_INL_H_
#undef LENSLET_OPS_SIMD_SUM_INL_H_
#else
#define LENSLET_OPS_SIMD_SUM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The sum of f(tag, v, i) over x[0, n), where v holds the floats from x[i] on: at most 16 additions in float, the rest
/// in double. Four accumulators hide the latency. f: a lambda with HWY_ATTR, generic over the tag.
template <class D, class F>
HWY_INLINE double sum_f32(D d, const float* x, std::int64_t n, const F& f) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto at = [&](std::int64_t i) HWY_ATTR { return f(d, hn::LoadU(d, x + i), i); };
  double total = 0;
  std::int64_t i = 0;
  while (i + lanes <= n) {
    V a = hn::Zero(d), b = a, c = a, e = a;  // an array would lie in memory: g++ 12 leaves a loop over it rolled
    const std::int64_t end = std::min(n, i + 64 * lanes);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      // Prefetches the next row, which most callers read next.
      for (std::int64_t k = i; k < i + 4 * lanes; k += 16) hwy::Prefetch(x + n + k);
      a = hn::Add(a, at(i));
      b = hn::Add(b, at(i + lanes));
      c = hn::Add(c, at(i + 2 * lanes));
      e = hn::Add(e, at(i + 3 * lanes));
    }
    for (; i + lanes <= end; i += lanes) a = hn::Add(a, at(i));
    HWY_ALIGN float parts[hn::MaxLanes(d)];
    hn::Store(hn::Add(hn::Add(a, b), hn::Add(c, e)), d, parts);
    const hn::ScalableTag<double> wide;
    const hn::Rebind<float, decltype(wide)> half;
    auto totals = hn::Zero(wide);
    for (std::int64_t k = 0; k < lanes; k += static_cast<std::int64_t>(hn::Lanes(wide)))
      totals = hn::Add(totals, hn::PromoteTo(wide, hn::LoadU(half, parts + k)));
    total += hn::GetLane(hn::SumOfLanes(wide, totals));
  }
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) total += static_cast<double>(hn::GetLane(f(one, hn::LoadU(one, x + i), i)));
  return total;
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
