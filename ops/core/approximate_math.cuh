#pragma once
// Approximate functions for results that are rounded to 16 bits; each is a single CUDA instruction. Activations are
// within 2^-17 of their value (GELU: 2^-16.5; by tanh 2^-15.5, far below 0), or within 1e-35 where that is tiny (GELU:
// 3e-10).

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>

#include "base/cuda/host_device.h"

namespace lenslet::cuda {

// Single-instruction min and max that keep NaN, where the architecture has them. The sign of a zero is not defined.
LENSLET_HOST_DEVICE inline float at_least(float low, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
  return y;
#else
  return x < low ? low : x;
#endif
}
LENSLET_HOST_DEVICE inline float at_most(float high, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(high));
  return y;
#else
  return x > high ? high : x;
#endif
}

/// 2^x; results below 2^-126 become 0.
LENSLET_HOST_DEVICE inline float approximate_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
/// 1 / x; results below 2^-126 become 0.
LENSLET_HOST_DEVICE inline float approximate_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

/// A float whose division is approximate.
struct Approximate {
  float value;

  friend LENSLET_HOST_DEVICE Approximate operator+(Approximate a, Approximate b) { return {a.value + b.value}; }
  friend LENSLET_HOST_DEVICE Approximate operator*(Approximate a, Approximate b) { return {a.value * b.value}; }
  friend LENSLET_HOST_DEVICE Approximate operator/(Approximate a, Approximate b) {
    return {a.value * approximate_reciprocal(b.value)};
  }
};

/// The Math (ops/core/activation_kinds.h) of Approximate.
struct ApproximateMath {
  using V = Approximate;
  LENSLET_HOST_DEVICE V operator()(float constant) const { return {constant}; }
  LENSLET_HOST_DEVICE V neg(V x) const { return {-x.value}; }
  LENSLET_HOST_DEVICE V at_least(float low, V x) const { return {cuda::at_least(low, x.value)}; }
  LENSLET_HOST_DEVICE V at_most(float high, V x) const { return {cuda::at_most(high, x.value)}; }
  LENSLET_HOST_DEVICE V mul_add(V a, V b, V c) const { return {fmaf(a.value, b.value, c.value)}; }
  LENSLET_HOST_DEVICE V if_negative(V x, V yes, V no) const { return x.value < 0 ? yes : no; }
  LENSLET_HOST_DEVICE V short_exp(V x) const { return {approximate_exp2(x.value * 1.44269504F)}; }
  /// max(0, x) - a P(X < -a) of a normal X with a = |x|, as short_gelu(), but log2 of that P is a polynomial: 11
  /// instructions for 17, and one reciprocal or power of 2, of which a multiprocessor starts 16 a clock, for two. P is
  /// within 2^-16.8 of its size up to 6.5 (minimax, degree 7), within 2^-7 up to 8, where a P is 5e-15.
  LENSLET_HOST_DEVICE V gelu(V x) const {
    const float a = cuda::at_most(12.75F, fabsf(x.value));
    float p = fmaf(-1.7577762e-06F, a, 5.99365703e-05F);
    p = fmaf(p, a, -0.000916362857F);
    p = fmaf(p, a, 0.00844738539F);
    p = fmaf(p, a, -0.0538244992F);
    p = fmaf(p, a, -0.45861572F);
    p = fmaf(p, a, -1.15118015F);
    p = fmaf(p, a, -1.00000381F);
    return {fmaf(-a, approximate_exp2(p), cuda::at_least(0, x.value))};
  }
  /// x / y, whose limit at -inf / inf is 0.
  LENSLET_HOST_DEVICE V limited_ratio(V x, V y) const { return at_least(-FLT_MAX, x) / y; }
};

}  // namespace lenslet::cuda
