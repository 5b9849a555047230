#pragma once
// Where a run holds a convolution's operands. A blob is the packed filters, behind the multipliers if y is requantized.

#include "ops/core/conv_operands.h"
#include "ops/core/kernel.h"

namespace lenslet {

/// Op names its inputs (input, filter, bias, residual). Computed filters are an input, packed ones the blob.
template <typename Op, typename Problem>
void read_operands(const KernelRun& run, const Problem& problem, std::int64_t filters, ConvOperands& to) {
  to.x_data = run.in<void>(Op::input);
  to.filter_data = run.in<void>(Op::filter);
  if (run.blob != nullptr) to.filter_data = run.blob + (problem.requantized ? multiplier_bytes(filters) : 0);
  to.bias_data = run.in<void>(Op::bias);
  to.residual_data = run.in<void>(Op::residual);
  to.y_data = run.out<void>();
  if (problem.requantized) to.requantization = {reinterpret_cast<const float*>(run.blob), problem.y_zero_point};
}

}  // namespace lenslet
