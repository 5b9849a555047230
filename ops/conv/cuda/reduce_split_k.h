#pragma once
// The split-K reduction kernel.

#include "ops/core/activation.cuh"

namespace lenslet::cuda {

struct Context;

/// y[i] = activation(sum over splits of partial[split][i] + bias[k of i] + residual[i]) for the `elems` elements of y;
/// k of i is i / plane % k, plane being 1 in NHWC and P*Q in NCHW.
struct SplitKReduction {
  const float* partial = nullptr;   ///< [split_k][elems]
  const float* bias = nullptr;      ///< [k] or null
  const float* residual = nullptr;  ///< like y, or null; may be y
  float* y = nullptr;
  long long elems = 0;  ///< below 2^31
  unsigned plane = 1, k = 1;
  unsigned y_gap = 0;  ///< NHWC: padding floats between pixels of y; without a residual
  int split_k = 1;
  DeviceActivation activation;
};

/// Queues it. The order of additions depends on the split-K factor alone: one after another up to eight, as in a
/// cluster.
void reduce_split_k(const Context& context, const SplitKReduction& call);

}  // namespace lenslet::cuda
