#pragma once
// Launcher of windowed pooling.

#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/pool/pool.h"
#include "ops/pool/pool_kernels.h"

namespace lenslet::cuda {

struct Context;

/// y [n,c,out] from x [n,c,in], device addresses; `nhwc`: both stored with the channels last, and float32. `dtype`:
/// f32, and for the maximum i8 and u8. `indices` [n,c,out], for the maximum in nchw only: position of each maximum in
/// the whole of x; null: not wanted. A maximum passes over NaN.
void pool(const Context& context, PoolKind kind, const PoolProblem& problem, DType dtype, bool nhwc, const void* x,
          void* y, std::int64_t* indices);

}  // namespace lenslet::cuda
