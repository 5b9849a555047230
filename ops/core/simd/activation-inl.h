// Vector versions of every Activation, for the kernels that fuse one. Included by files that Highway compiles once per
// instruction set (hwy/foreach_target.h): the guard toggles, so that each target sees it once.
//
//   with_activation(activation, [&](auto act) {      // one switch, outside the loops
//     for (...) hn::StoreU(act(d, hn::LoadU(d, x + i)), d, y + i);
//   });
//
// NaN passes through every activation.
#if defined(LENSLET_OPS_SIMD_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LENSLET_OPS_SIMD_ACTIVATION_INL_H_
#undef LENSLET_OPS_SIMD_ACTIVATION_INL_H_
#else
#define LENSLET_OPS_SIMD_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "ops/core/activation.h"
#include "ops/core/simd/bounds-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// y * 2^n for whole n in [-152, 128] and y in [0.7, 1.5]; NaN stays NaN. `shifted` is n + 0x1.8p23: the last bit of a
/// float between 2^23 and 2^24 counts ones, so its low bits are n.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<float> times_power(hn::Vec512<float> y, hn::Vec512<float> n, hn::Vec512<float>) {
  return hn::Vec512<float>{_mm512_scalef_ps(y.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> times_power(hn::Vec256<float> y, hn::Vec256<float> n, hn::Vec256<float>) {
  return hn::Vec256<float>{_mm256_scalef_ps(y.raw, n.raw)};
}
template <std::size_t N>
HWY_INLINE hn::Vec128<float, N> times_power(hn::Vec128<float, N> y, hn::Vec128<float, N> n, hn::Vec128<float, N>) {
  return hn::Vec128<float, N>{_mm_scalef_ps(y.raw, n.raw)};
}
#else
template <class V>
HWY_INLINE V times_power(V y, V, V shifted) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> di;
  // As 2^(n/2) * 2^(n - n/2): n reaches 128 and -152, which one factor cannot represent. For NaN, which y carries, any
  // exponent will do.
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, std::bit_cast<std::int32_t>(0x1.8p23F)));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(y, first), second);
}
#endif

/// e^x, f32, within 1.3 ulp for normal results (tested); gradual underflow below -87.3, 0 below -103.97, +inf above
/// 88.72.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_f32(D d, V x) {
  // Clamped: the result is 0 or inf beyond, and n stays in times_power()'s range.
  x = at_most(hn::Set(d, 89.0f), at_least(hn::Set(d, -105.0f), x));
  const V shift = hn::Set(d, 0x1.8p23F);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V n = hn::Sub(shifted, shift);
  // x - n ln 2 with ln 2 in two parts; the first has few enough bits that n times it is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693115234375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 3.19461833e-5f), r);
  // e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2: q by Remez exchange on the relative error of e^r, 2.7e-8.
  V q = hn::Set(d, 1.44686180583e-3f);
  q = hn::MulAdd(q, r, hn::Set(d, 8.36242561318e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 4.16587269206e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.66666027409e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 5.00000158056e-1f));
  const V y = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  return times_power(y, n, shifted);
}

/// e^x with a relative error of at most 2.5e-7, for 1 + e^x; subnormals, 0, inf and NaN as exp_f32.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// The one nearer to zero of `f` and 0.501 with f's sign; 0.501 where f is NaN.
HWY_INLINE hn::Vec512<float> bounded(hn::Vec512<float> f) {
  return hn::Vec512<float>{_mm512_range_ps(f.raw, _mm512_set1_ps(0.501f), 2)};
}
HWY_INLINE hn::Vec256<float> bounded(hn::Vec256<float> f) {
  return hn::Vec256<float>{_mm256_range_ps(f.raw, _mm256_set1_ps(0.501f), 2)};
}
template <std::size_t N>
HWY_INLINE hn::Vec128<float, N> bounded(hn::Vec128<float, N> f) {
  return hn::Vec128<float, N>{_mm_range_ps(f.raw, _mm_set1_ps(0.501f), 2)};
}
/// 2^n 2^f: 11 instructions instead of 15, since x needs no clamp. Beyond 2^23 and for infinities f is meaningless, but
/// 2^n alone decides. SiLU of 16 floats took 1.8 instead of 2.4 ns on a Zen 5; the division overlaps the rest (with a
/// 14-bit reciprocal and a Newton step: 2.2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V short_exp_f32(D d, V x) {
  const V log2_e = hn::Set(d, 1.44269502f);
  const V n = hn::Round(hn::Mul(x, log2_e));
  const V f = bounded(hn::MulAdd(x, hn::Set(d, 1.92596303e-8f), hn::MulSub(x, log2_e, n)));
  // Least squares for 2^f on [-1/2, 1/2], weighed until no relative error exceeds 7.5e-8.
  V y = hn::Set(d, 1.32764704e-3f);
  y = hn::MulAdd(y, f, hn::Set(d, 9.67554162e-3f));
  y = hn::MulAdd(y, f, hn::Set(d, 5.55071328e-2f));
  y = hn::MulAdd(y, f, hn::Set(d, 2.40221197e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 6.93146967e-1f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  return times_power(y, n, n);
}
#else
template <class D, class V = hn::Vec<D>>
HWY_INLINE V short_exp_f32(D d, V x) {
  return exp_f32(d, x);
}
#endif

LENSLET_DEFINE_SHORT_GELU(HWY_INLINE)

/// Vector arithmetic with the names of the scalar one (ops/core/scalar_math.h).
template <class D>
struct VectorMath {
  using V = hn::Vec<D>;

  HWY_INLINE V operator()(float constant) const { return hn::Set(D(), constant); }
  HWY_INLINE V neg(V x) const { return hn::Neg(x); }
  HWY_INLINE V abs(V x) const { return hn::Abs(x); }
  HWY_INLINE V at_least(float low, V x) const { return HWY_NAMESPACE::at_least(hn::Set(D(), low), x); }
  HWY_INLINE V at_most(float high, V x) const { return HWY_NAMESPACE::at_most(hn::Set(D(), high), x); }
  HWY_INLINE V mul_add(V a, V b, V c) const { return hn::MulAdd(a, b, c); }
  HWY_INLINE V if_negative(V x, V yes, V no) const { return hn::IfThenElse(hn::Lt(x, hn::Zero(D())), yes, no); }
  HWY_INLINE V limited_ratio(V x, V y) const { return x / y; }
  HWY_INLINE V short_exp(V x) const { return short_exp_f32(D(), x); }
  HWY_INLINE V gelu(V x) const { return short_gelu(*this, x); }
};

LENSLET_DEFINE_ACTIVATED(HWY_INLINE)

/// An Activation of one kind, for vectors of any width.
template <Activation::Kind kind>
struct VectorActivation {
  float alpha, beta;
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D, V x) const {
    return activated<kind>(VectorMath<D>(), x, alpha, beta);
  }
};

/// Calls f(object) with the function object of `activation`. f must be compiled for the target, too: a lambda with
/// HWY_ATTR after its parameters.
template <class F>
HWY_INLINE void with_activation(const Activation& activation, const F& f) {
#define LENSLET_CASE(NAME, PARAMETERS, ...) \
  case Activation::Kind::NAME:              \
    return f(VectorActivation<Activation::Kind::NAME>{activation.alpha, activation.beta});
  switch (activation.kind) { LENSLET_ACTIVATIONS(LENSLET_CASE) }
#undef LENSLET_CASE
}

/// y[i] = f(d, x[i]) for i in [0, count); x may be y. The tail goes through a padded copy of one vector: nothing
/// outside [0, count) is read or written.
template <class D, class F>
HWY_INLINE void map_f32(D d, const F& f, const float* x, float* y, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  if (i == count) return;
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  for (std::int64_t j = i; j < count; ++j) rest[j - i] = x[j];
  hn::Store(f(d, hn::Load(d, rest)), d, rest);
  for (std::int64_t j = i; j < count; ++j) y[j] = rest[j - i];
}

/// Applies `activation` to x[0, count) in place.
HWY_INLINE void activate_f32(const Activation& activation, float* x, std::int64_t count) {
  if (activation.kind == Activation::Kind::none) return;
  const hn::ScalableTag<float> d;
  with_activation(activation, [&](auto act) HWY_ATTR { map_f32(d, act, x, x, count); });
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
