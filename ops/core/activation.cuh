#pragma once
// Activations on the device, for the kernels that fuse one. The kind is an argument, not a template parameter: all
// threads branch alike, which costs a kernel that is bound by memory or by fma nothing one can measure, and a big
// kernel is compiled once instead of eight times.
//
// NaN passes through every activation, as on the CPU: hence comparisons, because fmaxf and fminf turn NaN into a
// number.

#include <cuda_runtime.h>

#include "ops/core/activation.h"

namespace lenslet::cuda {

/// x limited to [low, high]; NaN stays NaN.
__device__ inline float clip(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}

/// 1 / (1 + e^-x), within 3 ulp. exp_f32 would make that 2 and takes 29 instructions where expf takes 10: too many
/// for the epilogue of a short sum.
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// The activation of one value. `alpha` and `beta` as in Activation.
__device__ inline float apply_activation(Activation::Kind kind, float alpha, float beta, float x) {
  switch (kind) {
    case Activation::Kind::none:
      return x;
    case Activation::Kind::relu:
      return x < 0 ? 0.0f : x;
    case Activation::Kind::clip:
      return clip(x, alpha, beta);
    case Activation::Kind::leaky_relu:
      return x < 0 ? alpha * x : x;
    case Activation::Kind::sigmoid:
      return sigmoid(x);
    case Activation::Kind::silu:
      // -inf / inf would be NaN; the limit is 0.
      return x == -INFINITY ? 0.0f : x / (1.0f + expf(-x));
    case Activation::Kind::hard_swish:
      return x * clip(fmaf(x, alpha, beta), 0, 1);
    case Activation::Kind::hard_sigmoid:
      return clip(fmaf(x, alpha, beta), 0, 1);
  }
  return x;
}

/// The same of four values, with one branch.
__device__ inline float4 apply_activation(Activation::Kind kind, float alpha, float beta, float4 x) {
  switch (kind) {
    case Activation::Kind::none:
      return x;
    case Activation::Kind::relu:
      return {x.x < 0 ? 0.0f : x.x, x.y < 0 ? 0.0f : x.y, x.z < 0 ? 0.0f : x.z, x.w < 0 ? 0.0f : x.w};
    default:
      return {apply_activation(kind, alpha, beta, x.x), apply_activation(kind, alpha, beta, x.y),
              apply_activation(kind, alpha, beta, x.z), apply_activation(kind, alpha, beta, x.w)};
  }
}

/// An Activation as kernels take it: by value, 12 bytes.
struct DeviceActivation {
  Activation::Kind kind = Activation::Kind::none;
  float alpha = 0, beta = 0;

  DeviceActivation() = default;
  explicit DeviceActivation(const Activation& activation)
      : kind(activation.kind), alpha(activation.alpha), beta(activation.beta) {}

  __device__ float operator()(float x) const { return apply_activation(kind, alpha, beta, x); }
  __device__ float4 operator()(float4 x) const { return apply_activation(kind, alpha, beta, x); }
};

}  // namespace lenslet::cuda
