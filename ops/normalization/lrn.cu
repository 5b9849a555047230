#include "ops/normalization/lrn_cuda.h"

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

/// 1 / (bias + scale * squares)^beta. `three_quarters`: beta, as in every published network; other exponents in double,
/// since powf is off by up to 4 ulp.
template <bool three_quarters>
__device__ float factor(const LrnProblem& p, float squares) {
  const float sum = p.bias + p.scale * squares;
  if constexpr (three_quarters) {
    const float root = sqrtf(sum);
    return 1 / (root * sqrtf(root));
  } else {
    return static_cast<float>(pow(static_cast<double>(sum), -static_cast<double>(p.beta)));
  }
}

/// A thread an element. The window's other channels come from the caches: a warp's neighbours read the same lines.
template <bool three_quarters>
__global__ void __launch_bounds__(threads) lrn_kernel(const float* x, float* y, const __grid_constant__ LrnProblem p,
                                                      Radix inner, Radix channels, std::int64_t count, bool narrow) {
  wait_for_previous();
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (element >= count) return;
  std::int64_t rest = element;
  take_digit(rest, inner, narrow);
  const std::int64_t channel = take_digit(rest, channels, narrow);
  const auto below = static_cast<int>(channel < p.before ? channel : p.before);
  const std::int64_t left = p.channels - 1 - channel;
  const auto above = static_cast<int>(left < p.after ? left : p.after);
  float squares = 0;
#pragma unroll 4
  for (int k = -below; k <= above; ++k) {
    const float other = x[element + k * p.inner];
    squares += other * other;
  }
  y[element] = x[element] * factor<three_quarters>(p, squares);
}

/// Channels last, in float4, and at most four on either side: a thread makes four neighbouring channels from three
/// loads.
template <bool three_quarters>
__global__ void __launch_bounds__(threads) lrn_quads(const float4* x, float4* y, const __grid_constant__ LrnProblem p,
                                                     Radix channel_quads, std::int64_t count, bool narrow) {
  wait_for_previous();
  const std::int64_t quad = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (quad >= count) return;
  std::int64_t rest = quad;
  const std::int64_t at = take_digit(rest, channel_quads, narrow);
  const float4 zero{}, here = x[quad];
  const float4 below = at > 0 ? x[quad - 1] : zero, above = at + 1 < channel_quads.value ? x[quad + 1] : zero;
  const float values[12] = {below.x, below.y, below.z, below.w, here.x,  here.y,
                            here.z,  here.w,  above.x, above.y, above.z, above.w};
  const int before = static_cast<int>(p.before), after = static_cast<int>(p.after);
  float out[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float squares = 0;
#pragma unroll
    for (int d = -4; d <= 4; ++d)
      if (-d <= before && d <= after) squares += values[4 + k + d] * values[4 + k + d];
    out[k] = values[4 + k] * factor<three_quarters>(p, squares);
  }
  y[quad] = make_float4(out[0], out[1], out[2], out[3]);
}

}  // namespace

void lrn(const Context& context, const LrnProblem& problem, const float* x, float* y) {
  const std::int64_t count = problem.outer * problem.channels * problem.inner;
  if (count == 0) return;
  if (problem.inner == 1 && problem.channels % 4 == 0 && problem.before <= 4 && problem.after <= 4 &&
      quad_aligned(x, y))
    return launch(context, problem.beta == 0.75f ? lrn_quads<true> : lrn_quads<false>,
                  dim3(blocks_for(count / 4, threads)), dim3(threads), 0, reinterpret_cast<const float4*>(x),
                  reinterpret_cast<float4*>(y), problem, Radix(problem.channels / 4), count / 4,
                  count / 4 < Radix::narrow_end);
  const auto kernel = problem.beta == 0.75f ? lrn_kernel<true> : lrn_kernel<false>;
  launch(context, kernel, dim3(blocks_for(count, threads)), dim3(threads), 0, x, y, problem, Radix(problem.inner),
         Radix(problem.channels), count, count < Radix::narrow_end);
}

}  // namespace lenslet::cuda
