#pragma once
// Softmax of one row, and of columns side by side, vectorised.

#include <cstdint>

namespace lenslet {

/// Most columns that softmax_columns takes in one call.
inline constexpr std::int64_t softmax_strip = 64;

/// y = exp(x - max) / sum(exp(x - max)) over `length` elements; with `log` the logarithm of that. y may be x.
void softmax_row(const float* x, float* y, std::int64_t length, bool log);

/// The same along each of `count` <= softmax_strip neighbouring columns; lines are `stride` elements apart.
void softmax_columns(const float* x, float* y, std::int64_t length, std::int64_t stride, std::int64_t count, bool log);

}  // namespace lenslet
