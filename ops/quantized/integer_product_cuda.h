#pragma once
// Launchers of the integer products. Device addresses; indices fit 32 bits, as operands and result have at most
// most_integers elements.

#include <cstdint>

#include "ops/conv/problem.h"
#include "ops/gemm/problem.h"
#include "ops/quantized/integer_product.h"

namespace lenslet::cuda {

struct Context;

inline constexpr std::int64_t most_integers = std::int64_t{1} << 30;

/// Products y[m][n] = a[m][k] * b[k][n] of row-major matrices.
struct IntegerMatrices {
  std::int64_t m, n, k;
  ProductRun products;
};
void multiply_integers(const Context& context, const IntegerMatrices& matrices, const IntegerOperand& a,
                       const IntegerOperand& b, const IntegerResult& result);

/// x [N,C,H,W], w [K,C/groups,R,S], y [N,K,P,Q]; w is the left operand, with one matrix per group.
void convolve_integers(const Context& context, const ConvProblem& problem, const IntegerOperand& w,
                       const IntegerOperand& x, const IntegerResult& result);

}  // namespace lenslet::cuda
