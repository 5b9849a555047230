#include "ops/elementwise/unary_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/unary_kernels.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "ops/core/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "ops/core/simd/activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet {
namespace HWY_NAMESPACE {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// exp(x) - 1 for x <= 0; callers select, so what happens above 0 does not matter.
HWY_INLINE V expm1_negative(V x) {
  const D d;
  const V e = hn::Expm1(d, hn::Max(hn::Min(x, hn::Zero(d)), hn::Set(d, -104.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}

// Min and Max get the constant first: on x86 they return the second operand when one is NaN, which keeps NaN.
HWY_INLINE V clamp(V x, V low, V high) { return hn::Min(high, hn::Max(low, x)); }

template <class F>
HWY_INLINE void transform(const float* x, float* y, std::int64_t n, const F& f) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy(x + i, x + n, tail);
  hn::Store(f(hn::Load(d, tail)), d, tail);
  std::copy(tail, tail + (n - i), y + i);
}

// Rare functions of the C library, where no vector version of known accuracy is at hand.
template <class F>
HWY_INLINE void transform_scalar(const float* x, float* y, std::int64_t n, const F& f) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
}

void unary_kernel(const UnaryFunction& f, const float* x, float* y, std::int64_t n) {
  const D d;
  const V zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  const V alpha = hn::Set(d, f.alpha), beta = hn::Set(d, f.beta);
  switch (f.kind) {
    case UnaryKind::identity:
      if (x != y) std::copy(x, x + n, y);
      return;
    case UnaryKind::relu:
      return transform(x, y, n, [](V v) HWY_ATTR { return ReluActivation{}(D(), v); });
    case UnaryKind::leaky_relu:
      return transform(x, y, n, [=](V v) HWY_ATTR { return LeakyReluActivation{f.alpha}(D(), v); });
    case UnaryKind::clip:
      return transform(x, y, n, [=](V v) HWY_ATTR { return ClipActivation{f.alpha, f.beta}(D(), v); });
    case UnaryKind::sigmoid:
      return transform(x, y, n, [](V v) HWY_ATTR { return SigmoidActivation{}(D(), v); });
    case UnaryKind::silu:
      return transform(x, y, n, [](V v) HWY_ATTR { return SiluActivation{}(D(), v); });
    case UnaryKind::tanh:
      // Beyond 10 the result is 1 in float.
      return transform(x, y, n, [=](V v) HWY_ATTR {
        const V t = hn::Tanh(d, clamp(v, hn::Set(d, -10.0f), hn::Set(d, 10.0f)));
        return hn::IfThenElse(hn::IsNaN(v), v, t);
      });
    case UnaryKind::hard_sigmoid:
      return transform(x, y, n, [=](V v) HWY_ATTR { return HardSigmoidActivation{f.alpha, f.beta}(D(), v); });
    case UnaryKind::hard_swish:
      return transform(x, y, n, [=](V v) HWY_ATTR { return HardSwishActivation{f.alpha, f.beta}(D(), v); });
    case UnaryKind::elu:
      return transform(
          x, y, n, [=](V v) HWY_ATTR { return hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, expm1_negative(v)), v); });
    case UnaryKind::selu:
      return transform(x, y, n, [=](V v) HWY_ATTR {
        return hn::Mul(beta, hn::IfThenElse(hn::Lt(v, zero), hn::Mul(alpha, expm1_negative(v)), v));
      });
    case UnaryKind::softplus:
      return transform(x, y, n, [=](V v) HWY_ATTR {
        return hn::Add(hn::Max(zero, v), hn::Log1p(d, exp_f32(d, hn::Neg(hn::Abs(v)))));
      });
    case UnaryKind::mish:
      // tanh(log(1 + w)) = (w^2 + 2w) / (w^2 + 2w + 2) with w = exp(x); beyond 20 the quotient is 1 in float.
      return transform(x, y, n, [=](V v) HWY_ATTR {
        const V w = exp_f32(d, hn::Min(hn::Set(d, 20.0f), v));
        const V t = hn::Mul(w, hn::Add(w, hn::Set(d, 2.0f)));
        return hn::Mul(v, hn::Div(t, hn::Add(t, hn::Set(d, 2.0f))));
      });
    case UnaryKind::abs:
      return transform(x, y, n, [](V v) HWY_ATTR { return hn::Abs(v); });
    case UnaryKind::neg:
      return transform(x, y, n, [](V v) HWY_ATTR { return hn::Neg(v); });
    case UnaryKind::exp:
      return transform(x, y, n, [](V v) HWY_ATTR { return exp_f32(D(), v); });
    case UnaryKind::sqrt:
      return transform(x, y, n, [](V v) HWY_ATTR { return hn::Sqrt(v); });
    case UnaryKind::reciprocal:
      return transform(x, y, n, [=](V v) HWY_ATTR { return hn::Div(one, v); });
    case UnaryKind::floor:
      return transform(x, y, n, [](V v) HWY_ATTR { return hn::Floor(v); });
    case UnaryKind::ceil:
      return transform(x, y, n, [](V v) HWY_ATTR { return hn::Ceil(v); });
    case UnaryKind::log:
      return transform_scalar(x, y, n, [](float v) { return std::log(v); });
    case UnaryKind::erf:
      return transform_scalar(x, y, n, [](float v) { return std::erf(v); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lenslet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(unary_kernel);

void apply_unary(const UnaryFunction& f, const float* x, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(unary_kernel)(f, x, y, n);
}

}  // namespace lenslet
#endif
