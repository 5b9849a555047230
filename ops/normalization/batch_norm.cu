#include "ops/normalization/batch_norm_cuda.h"

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/dtypes.h"
#include "ops/core/activation.cuh"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

/// Rewrites the function as x * factor[c] + offset[c], as batch_norm_as_scale does on the host. Parameters of type T.
template <typename T>
__global__ void __launch_bounds__(threads)
    compute_factors(BatchNormParameters p, float* factor, float* offset, std::int64_t channels) {
  wait_for_previous();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (c >= channels) return;
  const auto of = [c](const void* values) { return static_cast<double>(loaded(static_cast<const T*>(values)[c])); };
  const double exact = of(p.scale) / sqrt(of(p.var) + static_cast<double>(p.epsilon));
  factor[c] = static_cast<float>(exact);
  offset[c] = static_cast<float>(of(p.bias) - of(p.mean) * exact);
}

__device__ float scale_shift(float x, float factor, float offset) { return fmaf(x, factor, offset); }

template <typename T>
__global__ void __launch_bounds__(threads)
    scale_elements(const T* x, T* y, const float* factor, const float* offset, Radix inner, Radix channels,
                   std::int64_t x_gap, std::int64_t count, bool narrow, DeviceActivation activation) {
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  std::int64_t rest = i;
  take_digit(rest, inner, narrow);
  const std::int64_t c = take_digit(rest, channels, narrow);
  y[i] = as_stored<T>(activation(scale_shift(loaded(x[i + rest * x_gap]), factor[c], offset[c])));
}

__device__ float4 scale_shift(float4 x, float4 factor, float4 offset) {
  return make_float4(scale_shift(x.x, factor.x, offset.x), scale_shift(x.y, factor.y, offset.y),
                     scale_shift(x.z, factor.z, offset.z), scale_shift(x.w, factor.w, offset.w));
}
__device__ Eight scale_shift(const Eight& x, const Eight& factor, const Eight& offset) {
  return {scale_shift(x.low, factor.low, offset.low), scale_shift(x.high, factor.high, offset.high)};
}

/// In 16 bits by approximate functions: with exact ones SiLU takes longer than memory.
template <int count>
__device__ void activate(const DeviceActivation& activation, float4 (&x)[count]) {
#pragma unroll
  for (float4& each : x) each = activation(each);
}
template <int count>
__device__ void activate(const DeviceActivation& activation, Eight (&x)[count]) {
  activation.apply_for_halves(reinterpret_cast<float(&)[8 * count]>(x));
}

/// Sets all elements to one number.
__device__ void fill(float4& values, float value) { values = make_float4(value, value, value, value); }
__device__ void fill(Eight& values, float value) {
  fill(values.low, value);
  fill(values.high, value);
}

/// Packs of four floats or eight halves: of one channel (inner in packs), or one channel per element (inner 1, channels
/// in packs). `inner`, `channels`, `x_gap` and the steps count packs. A thread has `count` packs, `step` apart, in x
/// `x_step`, which have the same channels: their factors are read once.
template <bool of_channels, int count, typename Stored>
__global__ void __launch_bounds__(threads)
    scale_packs(const Stored* x, Stored* y, const float* factor, const float* offset, Radix inner, Radix channels,
                std::int64_t x_gap, std::int64_t packs, std::int64_t step, std::int64_t x_step, bool narrow,
                DeviceActivation activation) {
  wait_for_previous();
  let_next_start();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= step) return;
  std::int64_t rest = i;
  if constexpr (!of_channels) take_digit(rest, inner, narrow);
  const std::int64_t c = take_digit(rest, channels, narrow);
  Stored loads[count] = {};
#pragma unroll
  for (int j = 0; j < count; ++j)
    if (i + j * step < packs) loads[j] = x[i + rest * x_gap + j * x_step];
  using Value = Loaded<Stored>;
  Value f, o;
  if constexpr (of_channels) {
    f = reinterpret_cast<const Value*>(factor)[c];
    o = reinterpret_cast<const Value*>(offset)[c];
  } else {
    fill(f, factor[c]);
    fill(o, offset[c]);
  }
  Value values[count];
#pragma unroll
  for (int j = 0; j < count; ++j) values[j] = scale_shift(loaded(loads[j]), f, o);
  activate(activation, values);
#pragma unroll
  for (int j = 0; j < count; ++j)
    if (i + j * step < packs) y[i + j * step] = as_stored<Stored>(values[j]);
}

/// T as four or eight of them.
template <typename T>
using Several = std::conditional_t<is_half<T>, EightHalves<T>, float4>;

}  // namespace

void batch_norm_factors(const Context& context, const BatchNormParameters& parameters, std::int64_t channels,
                        float* to) {
  if (channels == 0) return;
  dispatch(parameters.dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    launch(context, compute_factors<T>, dim3(blocks_for(channels, threads)), dim3(threads), 0, parameters, to,
           to + channels, channels);
  });
}

void batch_norm(const Context& context, const float* factors, const Activation& activation, DType dtype,
                std::int64_t outer, std::int64_t channels, std::int64_t inner, std::int64_t x_gap, const void* from,
                void* to) {
  const std::int64_t count = outer * channels * inner;
  if (count == 0) return;
  const float *factor = factors, *offset = factors + channels;
  const dim3 block(threads);
  const bool narrow = count < Radix::narrow_end, aligned = quad_aligned(from, to);
  const DeviceActivation applied(activation);
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    using Stored = Several<T>;
    constexpr std::int64_t pack = sizeof(Stored) / sizeof(T);
    const auto* packs = static_cast<const Stored*>(from);
    // A thread has four packs where a multiprocessor's threads would have two in turn.
    constexpr std::int64_t many = 1 << 19, several = 4;
    const std::int64_t all = count / pack;
    const auto start = [&](bool of_channels, std::int64_t row, std::int64_t row_gap) {
      const std::int64_t step = all < many ? all : (all / several + row) / row * row;
      const auto with = [&](auto kernel) {
        launch(context, kernel, dim3(blocks_for(step, threads)), block, 0, packs, static_cast<Stored*>(to), factor,
               offset, Radix(of_channels ? 1 : inner / pack), Radix(of_channels ? channels / pack : channels), row_gap,
               all, step, step + step / row * row_gap, narrow, applied);
      };
      if (of_channels)
        with(all < many ? scale_packs<true, 1, Stored> : scale_packs<true, several, Stored>);
      else
        with(all < many ? scale_packs<false, 1, Stored> : scale_packs<false, several, Stored>);
    };
    if (aligned && inner == 1 && channels % pack == 0 && x_gap % pack == 0)
      start(true, channels / pack, x_gap / pack);
    else if (aligned && inner % pack == 0 && x_gap == 0)
      start(false, channels * (inner / pack), 0);
    else
      launch(context, scale_elements<T>, dim3(blocks_for(count, threads)), block, 0, static_cast<const T*>(from),
             static_cast<T*>(to), factor, offset, Radix(inner), Radix(channels), x_gap, count, narrow, applied);
  });
}

}  // namespace lenslet::cuda
