#pragma once
// Launcher of local response normalization.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

struct LrnProblem {
  std::int64_t outer = 1, channels = 1, inner = 1;  ///< x as stored: nchw [N,C,H*W], nhwc [N*H*W,C,1]
  std::int64_t before = 0, after = 0;               ///< channels of the window on either side of each
  float scale = 0;                                  ///< alpha / size
  float beta = 0.75f, bias = 1;
};

/// y = x / (bias + scale * sum of squares over the window)^beta; device addresses; y must not be x. `dtype`: f32, or
/// f16 or bf16, rounded once.
void lrn(const Context& context, const LrnProblem& problem, DType dtype, const void* x, void* y);

}  // namespace lenslet::cuda
