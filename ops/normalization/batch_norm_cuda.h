#pragma once
// Launcher of batch normalization in inference.

#include <cstdint>

namespace lenslet::cuda {

struct Context;

/// scale, bias, mean, var: [C] device addresses.
struct BatchNormParameters {
  const float *scale, *bias, *mean, *var;
  float epsilon;
};

/// y = (x - mean[c]) / sqrt(var[c] + epsilon) * scale[c] + bias[c], with x and y stored [outer, channels, inner] (nchw
/// [N,C,H*W]; nhwc [N*H*W,C,1]); device addresses; y may be x. `workspace`: 2 * channels floats.
void batch_norm(const Context& context, const BatchNormParameters& parameters, std::int64_t outer,
                std::int64_t channels, std::int64_t inner, const float* x, float* y, float* workspace);

}  // namespace lenslet::cuda
