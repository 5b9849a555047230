#pragma once
// Launchers of elementwise kernels with one input. x and y are dense device memory in one format; y may be x.

#include <cstdint>

#include "lenslet/tensor.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

struct Context;

/// y[i] = f(x[i]) for i < elems, for the operator's types, plus f16 and bf16 if it has f32. NaN stays NaN. Errors: 2
/// ulp for functions of the device's library, a few ulp for compositions (Gelu below 0: in units of x); the others are
/// exact or rounded once.
void unary(const Context& context, const UnaryFunction& f, DType dtype, const void* x, void* y, std::int64_t elems);

/// A bound of Clip: on the device if `at` is not null, else a host number, a float for f16 and bf16.
struct ClipBound {
  const void *at, *number;
};
/// y[i] = min(max(x[i], low), high) for i < elems, of Clip's types, f16 or bf16; with low > high every element becomes
/// high.
void clip(const Context& context, const ClipBound& low, const ClipBound& high, DType dtype, const void* x, void* y,
          std::int64_t elems);

}  // namespace lenslet::cuda
