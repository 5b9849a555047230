#include "ops/cuda/lrn.h"

#include "ops/cuda/radix.cuh"
#include "runtime/base/cuda/launch.h"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

/// A thread an element. The window's other channels come from the caches: a warp's neighbours read the same lines.
/// `three_quarters`: beta, as in every published network; other exponents in double, since powf is off by up to 4 ulp.
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
  const float sum = p.bias + p.scale * squares;
  float factor;
  if constexpr (three_quarters) {
    const float root = sqrtf(sum);
    factor = 1 / (root * sqrtf(root));
  } else {
    factor = static_cast<float>(pow(static_cast<double>(sum), -static_cast<double>(p.beta)));
  }
  y[element] = x[element] * factor;
}

}  // namespace

void lrn(const Context& context, const LrnProblem& problem, const float* x, float* y) {
  const std::int64_t count = problem.outer * problem.channels * problem.inner;
  if (count == 0) return;
  const auto kernel = problem.beta == 0.75f ? lrn_kernel<true> : lrn_kernel<false>;
  launch(context, kernel, dim3(blocks_for(count, threads)), dim3(threads), 0, x, y, problem, Radix(problem.inner),
         Radix(problem.channels), count, count < Radix::narrow_end);
}

}  // namespace lenslet::cuda
