// bfloat16 in memory, float32 in registers. Included by files that Highway compiles once per instruction set: the guard
// toggles, so that each target sees it once.
#if defined(LENSLET_BASE_SIMD_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_BASE_SIMD_BF16_INL_H_
#undef LENSLET_BASE_SIMD_BF16_INL_H_
#else
#define LENSLET_BASE_SIMD_BF16_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vectors of D from elements of its type; of float from bfloat16, with the bits of f32_from_bf16().
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D d, const T* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* x) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto v = hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(x)))));
  return hn::IfThenElse(hn::IsNaN(v), hn::Or(v, hn::BitCast(d, hn::Set(words, 0x00400000U))), v);
}

/// The reverse, with the bits of bf16_from_f32(): to nearest even, also where an instruction would flush subnormals.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store(hn::Vec<D> v, D d, T* y) {
  hn::StoreU(v, d, y);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D, BFloat16* y) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> narrow;
  const auto bits = hn::BitCast(words, v), high = hn::ShiftRight<16>(bits);
  const auto even = hn::And(high, hn::Set(words, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(words, 0x7FFF)), even));
  const auto quiet = hn::Or(high, hn::Set(words, 0x40));
  hn::StoreU(hn::TruncateTo(narrow, hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(v)), quiet, rounded)), narrow,
             reinterpret_cast<std::uint16_t*>(y));
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
