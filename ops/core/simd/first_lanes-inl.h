// Loads and stores of less than a vector, for files that Highway compiles once per instruction set: the guard
// toggles, so that each target sees it once.
#if defined(LENSLET_OPS_SIMD_FIRST_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_FIRST_LANES_INL_H_
#undef LENSLET_OPS_SIMD_FIRST_LANES_INL_H_
#else
#define LENSLET_OPS_SIMD_FIRST_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` elements at `from`, which alone are read, then zeros; count is at most a vector's.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

/// Writes the first `count` elements alone.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* to, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
#else
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#endif
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
