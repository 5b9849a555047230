#pragma once
// The second half of a convolution whose terms were cut into slices.

#include <cstdint>

#include "ops/core/activation.h"

namespace lenslet::cuda {

struct Context;

/// y[i] = activation(sum over slices of partial[slice][i] + bias[k of i] + residual[i]) for the `elems` elements of y,
/// in whichever layout: k of i is i / plane % k, with plane 1 in NHWC and P*Q in NCHW.
struct SumSlices {
  const float* partial = nullptr;  ///< [slices][elems]
  int slices = 1;
  int adjacent = 1;        ///< this many slices, side by side, are added up first, then those sums
  std::int64_t elems = 0;  ///< below 2^31
  std::int64_t plane = 1, k = 1;
  const float* bias = nullptr;      ///< [k] or null
  const float* residual = nullptr;  ///< like y, or null; may be y
  float* y = nullptr;
  Activation activation;
};

/// Queues it. Slices are added in an order that depends on `slices` and `adjacent` alone.
void sum_slices(const Context& context, const SumSlices& call);

}  // namespace lenslet::cuda
