// Vector min and max that keep NaN. Included by files that Highway compiles once per instruction set.
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

/// True if min and max return NaN when their second operand is NaN, as on x86. Highway's NEON versions are FMAXNM and
/// FMINNM, which return the number, and plain C++ may do so, too.
inline constexpr bool max_shows_nan = HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;

/// max(low, x); NaN if x is NaN.
template <class V>
HWY_INLINE V at_least(V low, V x) {
  if constexpr (max_shows_nan) return hn::Max(low, x);
  return hn::IfThenElse(hn::Lt(x, low), low, x);
}
/// min(high, x); NaN if x is NaN.
template <class V>
HWY_INLINE V at_most(V high, V x) {
  if constexpr (max_shows_nan) return hn::Min(high, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

/// max(a, b); NaN if either is NaN.
template <class V>
HWY_INLINE V larger(V a, V b) {
  if constexpr (max_shows_nan) return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Gt(a, b)), a, b);
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
