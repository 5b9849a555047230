#pragma once
// Vectorised elementwise functions of one float.

#include <cstdint>

#include "ops/elementwise/unary_kinds.h"

namespace lenslet {

/// y[i] = f(x[i]) for i < n; y may be x. NaN stays NaN. Worst errors: 4 ulp for transcendental functions, a few more
/// for compositions (Softplus, Mish, Elu; Gelu below 0: in units of x); the others are exact or rounded once.
/// Single-threaded.
void apply_unary(const UnaryFunction& f, const float* x, float* y, std::int64_t n);

/// y[i] = min(max(x[i], low), high) for i < n; y may be x. NaN stays NaN. Single-threaded.
void apply_clip(float low, float high, const float* x, float* y, std::int64_t n);

}  // namespace lenslet
