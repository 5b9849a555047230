#pragma once
// The inner loops of few_rows.cpp, compiled once per instruction set.

#include <cstdint>

#include "ops/core/activation.h"

namespace lenslet {

constexpr std::int64_t most_dot_rows = 4;

/// y[i,j] = activation(alpha * scale[j] * sum over l of a[i,l] * b[j,l] + beta * C[i,j]) for i < m <= most_dot_rows and
/// j < n: a [m,k] and b [n,k] as they lie, row after row.
struct DotRows {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float alpha = 1, beta = 1;
  const float* scale = nullptr;  ///< [n]; null: 1
  const float* c = nullptr;      ///< C[i,j] lies at i * c_row + j * c_col; null: none is added
  std::int64_t c_row = 0, c_col = 0;
  Activation activation = {};
  float* y = nullptr;
  std::int64_t y_row = 0;  ///< floats from one row of y to the next
};

/// Reads b once. The bits of y[i,j] depend on a's row i, b's row j, whether m is 1, and the instruction set alone.
void dot_rows(const DotRows& call);

}  // namespace lenslet
