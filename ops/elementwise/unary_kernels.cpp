#include "ops/elementwise/unary_kernels.h"

#include <cmath>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/unary_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "ops/core/simd/activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {

/// Functions beyond those of activations.
template <class D>
struct UnaryMath : VectorMath<D> {
  using V = hn::Vec<D>;

  HWY_INLINE V abs(V x) const { return hn::Abs(x); }
  HWY_INLINE V max(float low, V x) const { return this->at_least(low, x); }
  HWY_INLINE V min(float high, V x) const { return this->at_most(high, x); }
  HWY_INLINE V exp(V x) const { return exp_f32(D(), x); }
  /// For x <= 0; callers select, so results above 0 are not used.
  HWY_INLINE V expm1(V x) const {
    const V e = hn::Expm1(D(), hn::Max(hn::Min(x, hn::Zero(D())), hn::Set(D(), -104.0f)));
    return hn::IfThenElse(hn::IsNaN(x), x, e);
  }
  HWY_INLINE V log1p(V x) const { return hn::Log1p(D(), x); }
  /// Within 1.3 ulp with FMA. A minimax polynomial near 0, else 1 - 2 / (e^2|x| + 1); beyond 10 the result is 1 in
  /// float.
  HWY_INLINE V tanh(V x) const {
    const auto c = [](float constant) HWY_ATTR { return hn::Set(D(), constant); };
    const V t = this->at_most(10, hn::Abs(x)), square = hn::Mul(t, t);
    V near = hn::MulAdd(c(-5.70498872745e-3f), square, c(2.06390887954e-2f));
    near = hn::MulAdd(near, square, c(-5.37397155531e-2f));
    near = hn::MulAdd(near, square, c(1.33314422036e-1f));
    near = hn::MulAdd(near, square, c(-3.33332819422e-1f));
    near = hn::MulAdd(hn::Mul(near, square), t, t);
    const V far = hn::Sub(c(1), hn::Div(c(2), hn::Add(exp(hn::Add(t, t)), c(1))));
    return hn::CopySign(hn::IfThenElse(hn::Lt(t, c(0.625f)), near, far), x);
  }
  HWY_INLINE V sqrt(V x) const { return hn::Sqrt(x); }
  HWY_INLINE V floor(V x) const { return hn::Floor(x); }
  HWY_INLINE V ceil(V x) const { return hn::Ceil(x); }
  HWY_INLINE V round(V x) const { return hn::Round(x); }
  HWY_INLINE V bit_not(V x) const { return hn::Not(x); }  // of integers alone
  /// Within 1.1 ulp, 1.0 with FMA (tested on each 613th float). Minimax polynomials of N. Juffa's erff.
  HWY_INLINE V erf(V x) const {
    const auto c = [](float constant) HWY_ATTR { return hn::Set(D(), constant); };
    const V t = this->at_most(4, hn::Abs(x)), square = hn::Mul(t, t);  // beyond 4 the result is 1 in float
    V far = hn::MulAdd(hn::MulAdd(c(-1.72853470e-5f), t, c(3.83197126e-4f)), square,
                       hn::MulAdd(c(-3.88396438e-3f), t, c(2.42546219e-2f)));
    far = hn::MulAdd(far, t, c(-1.06777877e-1f));
    far = hn::MulAdd(far, t, c(-6.34846687e-1f));
    far = hn::MulAdd(far, t, c(-1.28717512e-1f));
    far = hn::Sub(c(1), exp(hn::MulSub(far, t, t)));
    V near = hn::MulAdd(c(-5.96761703e-4f), square, c(4.99119423e-3f));
    near = hn::MulAdd(near, square, c(-2.67681349e-2f));
    near = hn::MulAdd(near, square, c(1.12819925e-1f));
    near = hn::MulAdd(near, square, c(-3.76125336e-1f));
    near = hn::MulAdd(near, square, c(1.28379166e-1f));
    return hn::IfThenElse(hn::Gt(t, c(0.927734375f)), hn::CopySign(far, x), hn::MulAdd(near, x, x));
  }
  // Highway's: within 2.6 ulp (tested on each 613th float), sin and cos only where the argument reduction is exact
  // enough.
  HWY_INLINE V any_expm1(V x) const {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Expm1(D(), this->at_most(104, this->at_least(-104, x))));
  }
  HWY_INLINE V sin(V x) const {
    return small(x) ? hn::Sin(D(), x) : each(x, [](float v) { return std::sin(v); });
  }
  HWY_INLINE V cos(V x) const {
    return small(x) ? hn::Cos(D(), x) : each(x, [](float v) { return std::cos(v); });
  }
  /// Highway's, within 0.87 ulp for positive finite numbers (tested on each 61st float).
  HWY_INLINE V log(V x) const {
    const V zero = hn::Zero(D()), inf = hn::Inf(D()), y = hn::Log(D(), x);
    const V odd = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), hn::IfThenElse(hn::Lt(x, zero), hn::NaN(D()), x));
    return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, inf)), y, odd);
  }
  HWY_INLINE V asin(V x) const { return hn::Asin(D(), x); }
  HWY_INLINE V acos(V x) const { return hn::Acos(D(), x); }
  HWY_INLINE V atan(V x) const { return hn::Atan(D(), x); }
  // From the C library, where there is no vector version of known accuracy.
#define LENSLET_EACH(NAME, FUNCTION)                     \
  HWY_INLINE V NAME(V x) const {                         \
    return each(x, [](float v) { return FUNCTION(v); }); \
  }
  LENSLET_EACH(tan, std::tan)
  LENSLET_EACH(sinh, std::sinh)
  LENSLET_EACH(cosh, std::cosh)
  LENSLET_EACH(asinh, std::asinh)
  LENSLET_EACH(acosh, std::acosh)
  LENSLET_EACH(atanh, std::atanh)
#undef LENSLET_EACH

 private:
  static HWY_INLINE bool small(V x) { return hn::AllTrue(D(), hn::Le(hn::Abs(x), hn::Set(D(), 39000.0f))); }
  template <class F>
  static HWY_INLINE V each(V x, const F& f) {
    if constexpr (hn::MaxLanes(D()) == 1) return hn::Set(D(), f(hn::GetLane(x)));
    HWY_ALIGN float values[hn::MaxLanes(D())];
    hn::Store(x, D(), values);
    for (float& value : values) value = f(value);
    return hn::Load(D(), values);
  }
};

LENSLET_DEFINE_UNARY(HWY_INLINE)

template <UnaryKind kind>
HWY_INLINE void apply(float a, float b, const float* x, float* y, std::int64_t n) {
  using D = hn::ScalableTag<float>;
  map_f32(
      D(), [a, b](D, auto v) HWY_ATTR { return unary<kind>(UnaryMath<D>(), v, a, b); }, x, y, n);
}

void unary_kernel(const UnaryFunction& f, const float* x, float* y, std::int64_t n) {
#define LENSLET_CASE(NAME, ...) \
  case UnaryKind::NAME:         \
    return apply<UnaryKind::NAME>(f.a, f.b, x, y, n);
  switch (f.kind) { LENSLET_UNARY_KINDS(LENSLET_CASE) }
#undef LENSLET_CASE
}

void clip_kernel(float low, float high, const float* x, float* y, std::int64_t n) {
  map_f32(hn::ScalableTag<float>(), VectorActivation<Activation::Kind::clip>{low, high}, x, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(unary_kernel);
HWY_EXPORT(clip_kernel);

void apply_unary(const UnaryFunction& f, const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(unary_kernel)(f, x, y, n);
}
void apply_clip(float low, float high, const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(clip_kernel)(low, high, x, y, n);
}

}  // namespace lenslet
#endif
