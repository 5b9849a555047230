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

__device__ float4 activated(const DeviceActivation& activation, float4 x) { return activation(x); }
__device__ Eight activated(const DeviceActivation& activation, const Eight& x) {
  return {activation(x.low), activation(x.high)};
}

/// Sets all elements to one number.
__device__ void fill(float4& values, float value) { values = make_float4(value, value, value, value); }
__device__ void fill(Eight& values, float value) {
  fill(values.low, value);
  fill(values.high, value);
}

/// One pack per thread, of four floats or eight halves: of one channel (inner in packs), or one channel per element
/// (inner 1, channels in packs). `inner`, `channels` and `x_gap` count packs.
template <bool of_channels, typename Stored>
__global__ void __launch_bounds__(threads)
    scale_packs(const Stored* x, Stored* y, const float* factor, const float* offset, Radix inner, Radix channels,
                std::int64_t x_gap, std::int64_t packs, bool narrow, DeviceActivation activation) {
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= packs) return;
  std::int64_t rest = i;
  if constexpr (!of_channels) take_digit(rest, inner, narrow);
  const std::int64_t c = take_digit(rest, channels, narrow);
  using Value = Loaded<Stored>;
  Value f, o;
  if constexpr (of_channels) {
    f = reinterpret_cast<const Value*>(factor)[c];
    o = reinterpret_cast<const Value*>(offset)[c];
  } else {
    fill(f, factor[c]);
    fill(o, offset[c]);
  }
  y[i] = as_stored<Stored>(activated(activation, scale_shift(loaded(x[i + rest * x_gap]), f, o)));
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
    const dim3 grid(blocks_for(count / pack, threads));
    // The factors are aligned; with channels in packs the offsets in it are, too.
    if (aligned && inner == 1 && channels % pack == 0 && x_gap % pack == 0)
      launch(context, scale_packs<true, Stored>, grid, block, 0, packs, static_cast<Stored*>(to), factor, offset,
             Radix(1), Radix(channels / pack), x_gap / pack, count / pack, narrow, applied);
    else if (aligned && inner % pack == 0 && x_gap == 0)
      launch(context, scale_packs<false, Stored>, grid, block, 0, packs, static_cast<Stored*>(to), factor, offset,
             Radix(inner / pack), Radix(channels), x_gap, count / pack, narrow, applied);
    else
      launch(context, scale_elements<T>, dim3(blocks_for(count, threads)), block, 0, static_cast<const T*>(from),
             static_cast<T*>(to), factor, offset, Radix(inner), Radix(channels), x_gap, count, narrow, applied);
  });
}

}  // namespace lenslet::cuda
