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
/// 32 elements with the bits of store(): a third of its instructions.
HWY_INLINE __m512i rounded_pair(hn::Vec512<float> first, hn::Vec512<float> second) {
  const auto rounded = [](__m512 v) HWY_ATTR {  // the upper halves
    const __m512i bits = _mm512_castps_si512(v),
                  even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF)));
    return _mm512_mask_or_epi32(nearest, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x00400000));
  };
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_epi16(rounded(first.raw), _mm512_or_si512(even, _mm512_set1_epi16(1)),
                                   rounded(second.raw));
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
