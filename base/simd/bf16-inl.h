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

/// Vectors of D from elements of its type; of float from bfloat16, where a NaN may stay a signalling one.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D d, const T* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* x) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> narrow;
  return hn::BitCast(
      d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(x)))));
}

/// What load() gives, with the bits of f32_from_bf16().
template <class D>
HWY_INLINE hn::Vec<D> quiet(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> words;
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

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// 32 elements with the bits of store(), rounded as words: 11 instructions.
HWY_INLINE __m512i rounded_pair(hn::Vec512<float> first, hn::Vec512<float> second) {
  // Both halves of the floats as words f0, s0, f1, s1 ...
  const __m512i f = _mm512_castps_si512(first.raw), s = _mm512_castps_si512(second.raw);
  constexpr __mmask32 of_second = 0xAAAAAAAA;
  const __m512i kept = _mm512_mask_blend_epi16(of_second, _mm512_srli_epi32(f, 16), s);
  const __m512i dropped = _mm512_mask_blend_epi16(of_second, f, _mm512_slli_epi32(s, 16));
  // Up if the dropped half is above the middle, or is the middle and `kept` is odd.
  const __m512i odd = _mm512_and_si512(kept, _mm512_set1_epi16(1));
  const __mmask32 up = _mm512_cmpgt_epu16_mask(_mm512_adds_epu16(dropped, odd), _mm512_set1_epi16(-0x8000));
  __m512i rounded = _mm512_mask_sub_epi16(kept, up, kept, _mm512_set1_epi16(-1));
  if (HWY_UNLIKELY(_mm512_cmp_ps_mask(first.raw, second.raw, _CMP_UNORD_Q) != 0)) {
    const auto nans = [](__m512 v) HWY_ATTR {  // both words of a float
      return _mm512_movepi16_mask(_mm512_movm_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q)));
    };
    const __mmask32 nan = (nans(first.raw) & ~of_second) | (nans(second.raw) & of_second);
    rounded = _mm512_mask_blend_epi16(nan, rounded, _mm512_or_si512(kept, _mm512_set1_epi16(0x40)));
  }
  const __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22,
                                         20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutexvar_epi16(order, rounded);
}
/// The reverse.
HWY_INLINE hn::Vec512<float> widened(__m256i elements) {
  return hn::Vec512<float>{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(elements), 16))};
}
HWY_INLINE hn::Vec512<float> first_widened(__m512i elements) { return widened(_mm512_castsi512_si256(elements)); }
HWY_INLINE hn::Vec512<float> second_widened(__m512i elements) {
  return widened(_mm512_extracti64x4_epi64(elements, 1));
}
/// Of the first `count` of 32 elements.
HWY_INLINE __mmask32 first_elements(std::int64_t count) {
  return static_cast<__mmask32>(count >= 32 ? ~0U : (1U << count) - 1);
}
#endif

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
