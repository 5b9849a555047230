// Division of many floats by one, for files that Highway compiles once per instruction set: the guard toggles, so that
// each target sees it once.
#if defined(LENSLET_OPS_SIMD_DIVIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_DIVIDE_INL_H_
#undef LENSLET_OPS_SIMD_DIVIDE_INL_H_
#else
#define LENSLET_OPS_SIMD_DIVIDE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// x/scale, bit-identical, for scales in 2^-40 .. 2^40 and quotients below 2^20, in a fraction of a division's time:
/// the quotient by the reciprocal, corrected by its remainder, is correctly rounded (Markstein: Computation of
/// Elementary Functions on the IBM RISC System/6000 Processor, 1990). His condition on the first quotient was tested
/// instead of proven: on the 230 million pairs with a quotient within 40/2^24 units of a tie, the only ones that could
/// differ. Quotients too small for an exact remainder round to 0 either way.
struct ByReciprocal {
  float scale;
  float reciprocal = 1 / scale;
  /// Never without FMA (SSE4): the remainder would be lost.
  static bool serves(float scale) { return HWY_NATIVE_FMA && scale >= 0x1p-40F && scale <= 0x1p40F; }
  template <typename V>
  HWY_INLINE V operator()(V x) const {
    const hn::DFromV<V> d;
    const V near = hn::Mul(x, hn::Set(d, reciprocal));
    return hn::MulAdd(hn::NegMulAdd(near, hn::Set(d, scale), x), hn::Set(d, reciprocal), near);
  }
};

struct ByDivision {
  float scale;
  template <typename V>
  HWY_INLINE V operator()(V x) const {
    return hn::Div(x, hn::Set(hn::DFromV<V>(), scale));
  }
};

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
