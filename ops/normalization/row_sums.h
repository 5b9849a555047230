#pragma once
// Vectorised row sums of floats in double; their order depends on the instruction set.

#include <cstdint>

namespace lenslet {

/// The sum of x[i].
double row_sum(const float* x, std::int64_t count);
/// The sum of |x[i]|.
double row_magnitudes(const float* x, std::int64_t count);
/// The sum of (x[i] - center)^2.
double row_squares(const float* x, std::int64_t count, double center);

}  // namespace lenslet
