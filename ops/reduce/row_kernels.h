#pragma once
// Vectorised folds (fold.h) of contiguous floats, and of rows of them, on the CPU.

#include <cstdint>

#include "base/half.h"
#include "ops/reduce/fold.h"

namespace lenslet::reduce {

/// The sum of x[0, n)'s terms in double; the order depends on the instruction set.
double row_sum(const float* x, std::int64_t n, Term term);
/// Adds the term of x[i * stride + j], i in [0, rows), to sums[j], j in [0, width), in row order.
void add_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums, Term term);
/// The same of bfloat16, by Term::value alone.
void add_rows(const BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums, Term term);
/// The largest or least of x[0, n), n > 0; NaN if one is.
float row_extreme(const float* x, std::int64_t n, bool largest);
/// y[i] = the largest or least of x[i * n + j], j in [0, n), i in [0, rows), n > 0; NaN if one is. For short rows.
void short_row_extremes(const float* x, std::int64_t n, std::int64_t rows, bool largest, float* y);
/// sums[i] = the sum of the terms of x[i * n + j], likewise.
void short_row_sums(const float* x, std::int64_t n, std::int64_t rows, Term term, double* sums);
/// The first position of row_extreme().
std::int64_t row_arg_extreme(const float* x, std::int64_t n, bool largest);
/// The sum of e^(x - top) over x[0, n), each power in float.
double row_exp_sum(const float* x, std::int64_t n, float top);

}  // namespace lenslet::reduce
