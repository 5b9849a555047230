#pragma once
// Normalization of short rows of 16 bits on the device.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias + residual for each row of x [rows, length] of a 16-bit
/// type, rounded once; device addresses. scale and bias [length], residual like x; bias and residual may be null. Not
/// `centered`: the mean counts as 0. Queues nothing and returns false for rows that a warp cannot hold, not of a
/// multiple of eight, or addresses not aligned.
bool normalize_half_rows(const Context& context, DType dtype, bool centered, const void* x, void* y, const float* scale,
                         const float* bias, const void* residual, float epsilon, std::int64_t rows,
                         std::int64_t length);

}  // namespace lenslet::cuda
