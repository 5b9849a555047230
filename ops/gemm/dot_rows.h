#pragma once
// The inner loops of few_rows.cpp, compiled once per instruction set.

#include <cstdint>

#include "ops/gemm/problem.h"

namespace lenslet {

/// Rows of A, where B lies transposed and where not.
constexpr std::int64_t most_dot_rows = 4, most_dot_rows_of_columns = 8;

/// One product of few rows.
struct DotRows {
  const MatrixProblem& problem;
  const float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;  ///< null when !problem.c
  float* y = nullptr;
};

/// Columns [begin, end) of y. Reads what b has of them once. The bits of y[i,j] depend on a's row i, b's column j,
/// whether gemm_m is 1, how B lies, and the instruction set alone.
void dot_rows(const DotRows& call, std::int64_t begin, std::int64_t end);

}  // namespace lenslet
