#pragma once
// Activations on the device, for kernels that fuse one. The kind is a run-time argument: all threads branch alike,
// which costs nothing measurable in kernels bound by memory or FMA, and each big kernel is compiled once, not
// once for each kind. NaN passes through every activation, as on the CPU.

#include <cuda_runtime.h>

#include <cmath>

#include "ops/core/approximate_math.cuh"
#include "ops/core/scalar_math.h"

namespace lenslet::cuda {

/// x limited to [low, high]; NaN stays NaN.
__device__ inline float clip(float x, float low, float high) {
  return lenslet::activated<Activation::Kind::clip>(ScalarMath<float>(), x, low, high);
}

/// Applies the activation to four values. `alpha` and `beta` are Activation's.
__device__ inline float4 activated(Activation::Kind kind, float4 x, float alpha, float beta) {
  const auto each = [&](auto of) { return float4{of(x.x), of(x.y), of(x.z), of(x.w)}; };
  if (is_clamp(kind)) {  // apart: the jump that a switch becomes takes longer than they do
    const float low = kind == Activation::Kind::none ? -INFINITY : kind == Activation::Kind::relu ? 0 : alpha;
    const float high = kind == Activation::Kind::clip ? beta : INFINITY;
    return each([&](float v) { return clip(v, low, high); });
  }
#define LENSLET_CASE(NAME, PARAMETERS, ...)         \
  case Activation::Kind::NAME:                      \
    if constexpr (is_clamp(Activation::Kind::NAME)) \
      break;                                        \
    else                                            \
      return each(                                  \
          [&](float v) { return lenslet::activated<Activation::Kind::NAME>(ScalarMath<float>(), v, alpha, beta); });
  switch (kind) { LENSLET_ACTIVATIONS(LENSLET_CASE) }
#undef LENSLET_CASE
  return x;
}

/// none, relu and clip as one clamp to [low, high]: two instructions. NaN stays NaN; a zero's sign is undefined.
struct Clamp {
  float low = -INFINITY, high = INFINITY;

  __device__ float operator()(float x) const { return at_most(high, at_least(low, x)); }
};

/// An Activation as a kernel argument, passed by value: 12 bytes.
struct DeviceActivation {
  Activation::Kind kind = Activation::Kind::none;
  float alpha = 0, beta = 0;

  DeviceActivation() = default;
  explicit DeviceActivation(const Activation& activation)
      : kind(activation.kind), alpha(activation.alpha), beta(activation.beta) {}

  __device__ float operator()(float x) const { return lenslet::activated(kind, x, alpha, beta); }
  __device__ float4 operator()(float4 x) const { return activated(kind, x, alpha, beta); }

  LENSLET_HOST_DEVICE bool is_clamp() const { return lenslet::is_clamp(kind); }
  /// The clamp that equals this activation, or one without effect. A few instructions, once per kernel.
  LENSLET_HOST_DEVICE Clamp clamp() const {
    Clamp limits;
    if (kind == Activation::Kind::relu) limits.low = 0;
    if (kind == Activation::Kind::clip) {  // a bound that is NaN is none
      limits.low = fmaxf(alpha, limits.low);
      limits.high = fminf(beta, limits.high);
    }
    return limits;
  }

  /// Activations of many numbers that are then rounded to 16 bits: one branch, approximate functions. Kernels that
  /// unroll this heavily keep the short clamp as a separate path.
  template <int count>
  __device__ void apply_for_halves(float (&x)[count]) const {
    const auto each = [&](auto of) {
#pragma unroll
      for (int i = 0; i < count; ++i) x[i] = of(x[i]);
    };
    if (is_clamp()) return each(clamp());
#define LENSLET_CASE(NAME, PARAMETERS, ...)                                                                      \
  case Activation::Kind::NAME:                                                                                   \
    if constexpr (!lenslet::is_clamp(Activation::Kind::NAME))                                                    \
      each([&](float v) {                                                                                        \
        return lenslet::activated<Activation::Kind::NAME>(ApproximateMath(), Approximate{v}, alpha, beta).value; \
      });                                                                                                        \
    break;
    switch (kind) { LENSLET_ACTIVATIONS(LENSLET_CASE) }
#undef LENSLET_CASE
  }
};

}  // namespace lenslet::cuda
