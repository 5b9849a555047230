#include "ops/normalization/lrn_cuda.h"

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/dtypes.h"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

/// 1 / (bias + scale * squares)^beta. `three_quarters`: beta 0.75, as in all published networks; other exponents in
/// double, since powf errs by up to 4 ulp.
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

/// One element per thread. The window's other channels hit the caches: a warp's lanes read the same lines.
template <bool three_quarters, typename T>
__global__ void __launch_bounds__(threads) lrn_kernel(const T* x, T* y, const __grid_constant__ LrnProblem p,
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
    const float other = loaded(x[element + k * p.inner]);
    squares += other * other;
  }
  y[element] = as_stored<T>(loaded(x[element]) * factor<three_quarters>(p, squares));
}

/// Four floats in memory: float4, or halves.
template <typename T>
struct alignas(sizeof(T) * 4) Four {
  T at[4];
};

/// Channels last, in fours, at most four on either side: a thread computes four adjacent channels from three loads.
template <bool three_quarters, typename T>
__global__ void __launch_bounds__(threads) lrn_quads(const Four<T>* x, Four<T>* y, const __grid_constant__ LrnProblem p,
                                                     Radix channel_quads, std::int64_t count, bool narrow) {
  wait_for_previous();
  const std::int64_t quad = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (quad >= count) return;
  std::int64_t rest = quad;
  const std::int64_t at = take_digit(rest, channel_quads, narrow);
  const Four<T> zero{}, here = x[quad];
  const Four<T> below = at > 0 ? x[quad - 1] : zero, above = at + 1 < channel_quads.value ? x[quad + 1] : zero;
  float values[12];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    values[k] = loaded(below.at[k]);
    values[4 + k] = loaded(here.at[k]);
    values[8 + k] = loaded(above.at[k]);
  }
  const int before = static_cast<int>(p.before), after = static_cast<int>(p.after);
  Four<T> out;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float squares = 0;
#pragma unroll
    for (int d = -4; d <= 4; ++d)
      if (-d <= before && d <= after) squares += values[4 + k + d] * values[4 + k + d];
    out.at[k] = as_stored<T>(values[4 + k] * factor<three_quarters>(p, squares));
  }
  y[quad] = out;
}

}  // namespace

void lrn(const Context& context, const LrnProblem& problem, DType dtype, const void* x, void* y) {
  const std::int64_t count = problem.outer * problem.channels * problem.inner;
  if (count == 0) return;
  const bool three_quarters = problem.beta == 0.75f;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    if (problem.inner == 1 && problem.channels % 4 == 0 && problem.before <= 4 && problem.after <= 4 &&
        quad_aligned(x, y))
      return launch(context, three_quarters ? lrn_quads<true, T> : lrn_quads<false, T>,
                    dim3(blocks_for(count / 4, threads)), dim3(threads), 0, static_cast<const Four<T>*>(x),
                    static_cast<Four<T>*>(y), problem, Radix(problem.channels / 4), count / 4,
                    count / 4 < Radix::narrow_end);
    launch(context, three_quarters ? lrn_kernel<true, T> : lrn_kernel<false, T>, dim3(blocks_for(count, threads)),
           dim3(threads), 0, static_cast<const T*>(x), static_cast<T*>(y), problem, Radix(problem.inner),
           Radix(problem.channels), count, count < Radix::narrow_end);
  });
}

}  // namespace lenslet::cuda
