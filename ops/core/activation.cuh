#pragma once
// Activations on the device, for the kernels that fuse one. The kind is an argument, not a template parameter: all
// threads branch alike, which costs a kernel that is bound by memory or by fma nothing one can measure, and a big
// kernel is compiled once instead of eight times. NaN passes through every activation, as on the CPU.

#include <cuda_runtime.h>

#include "ops/core/scalar_math.h"

namespace lenslet::cuda {

/// x limited to [low, high]; NaN stays NaN.
__device__ inline float clip(float x, float low, float high) {
  return lenslet::activated<Activation::Kind::clip>(ScalarMath<float>(), x, low, high);
}

/// The activation of four values, with one branch. `alpha` and `beta` as in Activation.
__device__ inline float4 activated(Activation::Kind kind, float4 x, float alpha, float beta) {
  const auto each = [&](auto of) { return float4{of(x.x), of(x.y), of(x.z), of(x.w)}; };
  switch (kind) {
    case Activation::Kind::none:
      return x;
    case Activation::Kind::relu:
      return each([](float v) { return lenslet::activated<Activation::Kind::relu>(ScalarMath<float>(), v, 0, 0); });
    default:
      return each([&](float v) { return lenslet::activated(kind, v, alpha, beta); });
  }
}

/// An Activation as kernels take it: by value, 12 bytes.
struct DeviceActivation {
  Activation::Kind kind = Activation::Kind::none;
  float alpha = 0, beta = 0;

  DeviceActivation() = default;
  explicit DeviceActivation(const Activation& activation)
      : kind(activation.kind), alpha(activation.alpha), beta(activation.beta) {}

  __device__ float operator()(float x) const { return lenslet::activated(kind, x, alpha, beta); }
  __device__ float4 operator()(float4 x) const { return activated(kind, x, alpha, beta); }
};

}  // namespace lenslet::cuda
