#pragma once
// Launcher of batch normalization in inference.

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

/// y = activation((x - mean[c]) / sqrt(var[c] + epsilon) * scale[c] + bias[c]), x and y stored [outer, channels, inner]
/// (nchw [N,C,H*W]; nhwc [N*H*W,C,1]); device addresses; y may be x. `dtype`: f32, or f16 or bf16, rounded once.
/// `x_gap`: stride of `outer` in x, in elements (Format::pixel_pitch). `workspace`: 2 * channels floats.
void batch_norm(const Context& context, const BatchNormParameters& parameters, const Activation& activation,
                DType dtype, std::int64_t outer, std::int64_t channels, std::int64_t inner, std::int64_t x_gap,
                const void* x, void* y, float* workspace);

}  // namespace lenslet::cuda
