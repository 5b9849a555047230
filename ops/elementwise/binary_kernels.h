#pragma once
// Elementwise functions of two floats along one run, vectorised.

#include <cstdint>

#include "ops/elementwise/binary_kinds.h"

namespace lenslet {

/// y[i] = f(a[i * a_stride], b[i * b_stride]) for i < n. Strides of 0 and 1 are fast, others are followed one by one.
/// y may be a or b where that one's stride is 1. Single-threaded.
void apply_binary(BinaryKind kind, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                  float* y, std::int64_t n);

/// y[i] = x[i] * scale[i * stride] + shift[i * stride], fused; stride is 0 or 1; y may be x.
void apply_scale_shift(const float* x, const float* scale, const float* shift, std::int64_t stride, float* y,
                       std::int64_t n);

}  // namespace lenslet
