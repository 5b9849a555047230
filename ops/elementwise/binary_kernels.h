#pragma once
// Vectorised elementwise functions of two floats, row by row.

#include <cstdint>

#include "ops/core/activation.h"
#include "ops/elementwise/binary_kinds.h"

namespace lenslet {

/// Rows of floats: element i of row r is at[r * row + i * stride].
struct BinaryOperand {
  const float* at = nullptr;
  std::int64_t row = 0, stride = 1;
};

/// y[r * y_row + i] = f(a, b) for r < rows and i < n. Strides of 0 and 1 are fast, others go element by element. y may
/// be a or b if that has y's layout. Single-threaded.
void apply_binary(BinaryKind kind, const BinaryOperand& a, const BinaryOperand& b, float* y, std::int64_t y_row,
                  std::int64_t rows, std::int64_t n);

/// y[r*n + i] = activation(x[r*x_row + i] * scale[i * stride] + shift[i * stride]) with FMA, for r < rows and i < n;
/// stride is 0 or 1; y may be x if x_row is n.
void apply_scale_shift(const float* x, std::int64_t x_row, const float* scale, const float* shift, std::int64_t stride,
                       const Activation& activation, float* y, std::int64_t rows, std::int64_t n);

}  // namespace lenslet
