#pragma once
// Launchers of elementwise kernels of one input. x and y lie on the device, densely and in the same format; y may be x.

#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

struct Context;

/// y[i] = f(x[i]) for i < elems, of a type that the operator has, or f16 or bf16 if it has f32. NaN stays NaN. Errors:
/// 2 units of the last place for what the device's library computes, a few for compositions (of Gelu below 0 in units
/// of x); the others are exact or rounded once.
void unary(const Context& context, const UnaryFunction& f, DType dtype, const void* x, void* y, std::int64_t elems);

/// A number of the clipped type on the device when `at` is not null; else on the host, of f16 and bf16 a float.
struct ClipBound {
  const void *at, *number;
};
/// y[i] = min(max(x[i], low), high) for i < elems, of a type that Clip has, f16 or bf16; with low > high everything
/// becomes high.
void clip(const Context& context, const ClipBound& low, const ClipBound& high, DType dtype, const void* x, void* y,
          std::int64_t elems);

}  // namespace lenslet::cuda
