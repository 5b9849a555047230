#pragma once
// The inner loops of few_rows.cpp, compiled per instruction set.

#include <cstdint>

#include "ops/gemm/problem.h"

namespace lenslet {

/// Most rows of A, for transposed B and for B [k,n].
constexpr std::int64_t most_dot_rows = 4, most_dot_rows_of_columns = 8;

/// One product with few rows.
struct DotRows {
  const MatrixProblem& problem;
  const float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;  ///< null when !problem.c
  float* y = nullptr;
};

/// Computes columns [begin, end) of y; reads b once. The bits of y[i,j] depend only on a's row i, b's column j, whether
/// gemm_m is 1, b's layout, and the instruction set.
void dot_rows(const DotRows& call, std::int64_t begin, std::int64_t end);

}  // namespace lenslet
