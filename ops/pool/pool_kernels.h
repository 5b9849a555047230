#pragma once
// Pooling kernels for float32: 2-D ones vectorised over channels (nhwc) or along a line (nchw).

#include <cstdint>

#include "ops/pool/pool.h"

namespace lenslet {

enum class PoolKind : std::uint8_t { max, average, average_with_pads };

/// One output line of an nhwc image: y[out_w][c] from x, the image [in_h][in_w][c]; `line` in [0, out_h).
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y);

/// One output line of an nchw plane: y[out_w] from x, the plane [in_h][in_w]; `scratch` holds in_w floats.
void pool_line_nchw(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* scratch,
                    float* y);

}  // namespace lenslet
