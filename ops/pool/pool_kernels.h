#pragma once
// Kernels of windowed pooling.

#include <cstdint>

#include "base/dtypes.h"
#include "ops/pool/pool.h"

namespace lenslet {

/// A maximum is NaN where the window holds one. lp: the root of the sum of |x|^p, p being PoolProblem::norm.
enum class PoolKind : std::uint8_t { max, average, average_with_pads, lp };
/// Element types of a maximum; averages and norms are of float.
using PoolTypes = Types<float, std::int8_t, std::uint8_t>;

// 2-D, of float, vectorised over channels (nhwc) or along a line (nchw); norms of p 1 and 2.

/// One output line of an nhwc image: y[out_w][c] from x, the image [in_h][in_w][c]; `line` in [0, out_h).
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y);

/// One output line of an nchw plane: y[out_w] from x, the plane [in_h][in_w]; `scratch` holds in_w floats.
void pool_line_nchw(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* scratch,
                    float* y);

namespace cuda {

struct Context;

/// y [n,c,out] from x [n,c,in], device addresses; `nhwc`: both stored with the channels last, and float32. `dtype` one
/// of PoolTypes. `indices` [n,c,out], for the maximum in nchw only: position of each maximum in the whole of x; null:
/// not wanted.
void pool(const Context& context, PoolKind kind, const PoolProblem& problem, DType dtype, bool nhwc, const void* x,
          void* y, std::int64_t* indices);

}  // namespace cuda
}  // namespace lenslet
