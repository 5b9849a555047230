#pragma once
// Kernels of Softmax and LogSoftmax.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

// Vectorised, on the CPU.

/// The most columns per call of softmax_columns.
inline constexpr std::int64_t softmax_strip = 64;

/// y = exp(x - max) / sum(exp(x - max)) over `length` elements; with `log` the logarithm of that. y may be x.
void softmax_row(const float* x, float* y, std::int64_t length, bool log);

/// The same along each of `count` <= softmax_strip adjacent columns; lines are `stride` elements apart. y may be x.
void softmax_columns(const float* x, float* y, std::int64_t length, std::int64_t stride, std::int64_t count, bool log);

namespace cuda {

struct Context;

/// x and y [outer, length, inner], device addresses; along the middle y = exp(x - max) / sum(exp(x - max)), or its
/// logarithm with `log`. Both are float32, or both 16-bit floats, computed in float and rounded once. y may be x. Sums
/// of over 32 elements per thread are in double.
void softmax(const Context& context, DType dtype, const void* x, void* y, std::int64_t outer, std::int64_t length,
             std::int64_t inner, bool log);

}  // namespace cuda
}  // namespace lenslet
