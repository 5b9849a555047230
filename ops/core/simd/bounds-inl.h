// Vectors kept within bounds, NaN as it is. Included by files that Highway compiles once per instruction set.
#if defined(LENSLET_OPS_SIMD_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_BOUNDS_INL_H_
#undef LENSLET_OPS_SIMD_BOUNDS_INL_H_
#else
#define LENSLET_OPS_SIMD_BOUNDS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Do minimum and maximum give NaN when their second operand is one? Those of x86 do (just the second counts);
/// Highway's of NEON are FMAXNM and FMINNM, which give the number, and so may plain C++ in their place.
inline constexpr bool max_shows_nan = HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

/// max(low, x), and NaN where x is.
template <class V>
HWY_INLINE V at_least(V low, V x) {
  if constexpr (max_shows_nan) return hn::Max(low, x);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
}
/// min(high, x), and NaN where x is.
template <class V>
HWY_INLINE V at_most(V high, V x) {
  if constexpr (max_shows_nan) return hn::Min(high, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

/// The larger one, and NaN where either is.
template <class V>
HWY_INLINE V larger(V a, V b) {
  if constexpr (max_shows_nan) return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
