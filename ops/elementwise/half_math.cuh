#pragma once
// Activations whose results are rounded to 16 bits, where few other instructions are: within 1.3e-6 of their value, or
// within 1e-36 (times |x| where that is above 1); GELU within 7e-7 of x. A third to a half of the instructions of
// ScalarMath, without a division's branches. Epilogues of products compute less exactly
// (ops/core/approximate_math.cuh).

#include "ops/core/approximate_math.cuh"
#include "ops/core/scalar_math.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

/// x / y within 2 ulp, for numbers of any size.
LENSLET_HOST_DEVICE inline float near_quotient(float x, float y) {
#if defined(__CUDA_ARCH__)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(y));
  return quotient;
#else
  return x / y;
#endif
}

struct HalfMath : ApproximateMath {
  LENSLET_HOST_DEVICE V abs(V x) const { return {fabsf(x.value)}; }
  /// 2^(x log2 e), whose exponent is rounded, times 1 + d for what the rounding left: within 5e-7 from -88 to 88,
  /// beyond which the result is that of the bound.
  LENSLET_HOST_DEVICE V short_exp(V x) const {
    const float within = cuda::at_most(88, cuda::at_least(-88, x.value)), exponent = within * 1.44269504F;
    const float d = fmaf(-exponent, 0.693147181F, within), y = approximate_exp2(exponent);
    return {fmaf(y, d, y)};
  }
  LENSLET_HOST_DEVICE V gelu(V x) const { return short_gelu(*this, x); }
};

/// An operator's function of 16-bit numbers, as float.
template <UnaryKind kind>
struct HalfUnary {
  static constexpr bool is_activation = row_of(kind).activation != Activation::Kind::none;
  float a, b;
  LENSLET_HOST_DEVICE float operator()(float x) const {
    if constexpr (is_activation)
      return unary<kind>(HalfMath(), Approximate{x}, a, b).value;
    else
      return unary<kind>(ScalarMath<float>(), x, a, b);
  }
};

}  // namespace lenslet::cuda
