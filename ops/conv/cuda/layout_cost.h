#pragma once
// What an NCHW algorithm costs beside itself. Activations run in NHWC, so that what goes in and what comes out is
// converted. The rule looks at one convolution at a time and cannot see that two neighbours in NCHW would share a
// conversion; such runs do not pay here, because no NCHW algorithm is faster than its NHWC kin by much.

#include "ops/conv/algorithm.h"

namespace lenslet::cuda {

/// Microseconds of the LayoutConvert steps of x, y and a residual: each a kernel that reads and writes its tensor once.
/// 64x56x56 takes 1.9 us on an H200 (1.9 by this), 64 times that 27 (25), 21 November 2026.
inline double nchw_conversions_us(const ConvProblem& p, const MachineRates& rates) {
  constexpr double start_us = 0.5;
  const int tensors = p.residual ? 3 : 2;
  const double x = static_cast<double>(p.n * p.c) * static_cast<double>(p.h * p.w);
  const double y = static_cast<double>(p.n * p.k) * static_cast<double>(p.p * p.q);
  const double bytes = 2 * sizeof(float) * (x + y * (tensors - 1));
  return tensors * (rates.launch_us + start_us) + bytes / rates.bytes_per_us;
}

}  // namespace lenslet::cuda
