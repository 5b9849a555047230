#pragma once
// Normalization of short rows on the device.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::cuda {

struct Context;

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias + residual for each row of x [rows, length], of float32 or
/// of a 16-bit type, then rounded once; device addresses. scale and bias [length], residual like x; bias and residual
/// may be null. Not `centered`: the mean counts as 0. Queues nothing and returns false for rows that a warp cannot hold
/// or that are no multiple of 16 bytes, or addresses not aligned to 16.
bool normalize_short_rows(const Context& context, DType dtype, bool centered, const void* x, void* y,
                          const float* scale, const float* bias, const void* residual, float epsilon, std::int64_t rows,
                          std::int64_t length);

}  // namespace lenslet::cuda
