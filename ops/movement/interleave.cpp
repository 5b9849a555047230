#include "ops/movement/interleave.h"

#include "base/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/movement/interleave.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void pairs_of(const InterleavePairs& p) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::uint32_t *a = p.a, *b = p.b;
  std::uint32_t* to = p.to;
  for (std::int64_t r = 0; r < p.rows; ++r, a += p.row, b += p.row, to += 2 * p.count) {
    const auto vector_at = [&](std::int64_t j) HWY_ATTR {
      hn::StoreInterleaved2(hn::LoadU(d, a + j), hn::LoadU(d, b + j), d, to + 2 * j);
    };
    std::int64_t j = 0;
    for (; j + lanes <= p.count; j += lanes) vector_at(j);
    if (j == p.count) continue;
    if (j > 0) {  // the last vector rewrites some elements
      vector_at(p.count - lanes);
    } else {
      for (; j < p.count; ++j) {
        to[2 * j] = a[j];
        to[2 * j + 1] = b[j];
      }
    }
  }
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(pairs_of);

void interleave_pairs(const InterleavePairs& pairs) { HWY_DYNAMIC_DISPATCH(pairs_of)(pairs); }

}  // namespace lenslet
#endif
