// Vector loops over channels for NHWC kernels. Included by files that Highway compiles once per instruction set: the
// guard toggles, so that each target sees it once.
#if defined(LENSLET_OPS_SIMD_OVER_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_OVER_CHANNELS_INL_H_
#undef LENSLET_OPS_SIMD_OVER_CHANNELS_INL_H_
#else
#define LENSLET_OPS_SIMD_OVER_CHANNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// f(tag, c) for c from `c` to `count`: whole vectors first, then half, quarter ... vectors, so that nothing outside
/// [c, count) is touched. f: a lambda with HWY_ATTR, generic over the tag.
template <class D, class F>
HWY_INLINE void over_channels(D d, std::int64_t c, std::int64_t count, const F& f) {
  constexpr std::int64_t lanes = hn::MaxLanes(D());
  for (; c + lanes <= count; c += lanes) f(d, c);
  if constexpr (lanes > 1) {
    if (c < count) over_channels(hn::CappedTag<float, (lanes > 4 ? lanes / 2 : 1)>(), c, count, f);
  }
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
