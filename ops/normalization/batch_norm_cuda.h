#pragma once
// Launchers of batch normalization in inference.

#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/core/activation.h"

namespace lenslet::cuda {

struct Context;

/// scale, bias, mean, var: [C] device addresses, of `dtype`: x's type, or f32.
struct BatchNormParameters {
  const void *scale, *bias, *mean, *var;
  float epsilon;
  DType dtype;
};

/// to: a factor scale / sqrt(var + epsilon), then an offset bias - mean * factor, per channel, computed in double.
void batch_norm_factors(const Context& context, const BatchNormParameters& parameters, std::int64_t channels,
                        float* to);

/// y = activation(x * factor[c] + offset[c]), x and y stored [outer, channels, inner] (nchw [N,C,H*W]; nhwc
/// [N*H*W,C,1]); device addresses; y may be x. `dtype`: f32, or f16 or bf16, rounded once. `x_gap`: stride of `outer`
/// in x, in elements (Format::pixel_pitch). `factors`: [2,C], as batch_norm_factors writes them, 16-byte aligned.
void batch_norm(const Context& context, const float* factors, const Activation& activation, DType dtype,
                std::int64_t outer, std::int64_t channels, std::int64_t inner, std::int64_t x_gap, const void* x,
                void* y);

}  // namespace lenslet::cuda
