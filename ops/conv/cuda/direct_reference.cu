// Convolution by definition, NCHW, one thread an output. The fallback where faster algorithms refuse, above all for
// filters that the network computes.

#include "ops/conv/cuda/direct_reference.h"

#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// w [K][C/groups][R][S].
template <typename Index>
struct DirectCall : ConvCall<Index> {
  Index group_c, group_k, outputs;
};

// 32-bit indices where they fit: 64-bit ones double the kernel's instructions.
template <typename Index>
__global__ void __launch_bounds__(threads) direct(const __grid_constant__ DirectCall<Index> call) {
  wait_for_previous();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (item >= call.outputs) return;
  const auto at = static_cast<Index>(item);
  const Index q = at % call.q;
  const Index p = at / call.q % call.p;
  const Index k = at / call.q / call.p % call.k;
  const Index n = at / call.q / call.p / call.k;

  const Index left = q * call.stride_w - call.pad_left, top = p * call.stride_h - call.pad_top;
  const Index plane = call.height * call.width;
  const float* x = call.x + (n * call.c + k / call.group_k * call.group_c) * plane;
  const float* w = call.w + k * (call.group_c * call.r * call.s);
  float sum = 0;
  for (Index c = 0; c < call.group_c; ++c, x += plane) {
    // Sums each channel's window apart: one long accumulation drifts on inputs whose mean is not zero.
    float window = 0;
    for (Index r = 0; r < call.r; ++r) {
      const Index row = top + r * call.dilation_h;
      for (Index s = 0; s < call.s; ++s, ++w) {
        const Index column = left + s * call.dilation_w;
        if (row < 0 || row >= call.height || column < 0 || column >= call.width) continue;
        window = fmaf(x[row * call.width + column], *w, window);
      }
    }
    sum += window;
  }
  if (call.bias != nullptr) sum += call.bias[k];
  if (call.residual != nullptr) sum += call.residual[at];
  call.y[at] = call.activation(sum);
}

template <typename Index>
std::unique_ptr<const BoundKernel> bind_direct(const ConvProblem& p) {
  const std::int64_t outputs = p.n * p.k * p.p * p.q;
  const DirectCall<Index> call{ConvCall<Index>(p), static_cast<Index>(p.group_c()), static_cast<Index>(p.group_k()),
                               static_cast<Index>(outputs)};
  return std::make_unique<OneLaunch<DirectCall<Index>>>(p, call, direct<Index>, blocks_for(outputs, threads), threads);
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_direct(const ConvProblem& p, bool wide) {
  return wide ? bind_direct<std::int64_t>(p) : bind_direct<std::int32_t>(p);
}

}  // namespace lenslet::cuda
