#include "ops/normalization/batch_norm_cuda.h"

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "ops/core/radix.cuh"

namespace lenslet::cuda {

namespace {

constexpr int threads = 256;

/// The same function as x * factor[c] + offset[c], as batch_norm_as_scale does it on the host.
__global__ void __launch_bounds__(threads)
    batch_norm_factors(BatchNormParameters p, float* factor, float* offset, std::int64_t channels) {
  wait_for_previous();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (c >= channels) return;
  const double exact =
      static_cast<double>(p.scale[c]) / sqrt(static_cast<double>(p.var[c]) + static_cast<double>(p.epsilon));
  factor[c] = static_cast<float>(exact);
  offset[c] = static_cast<float>(static_cast<double>(p.bias[c]) - static_cast<double>(p.mean[c]) * exact);
}

__device__ float scale_shift(float x, float factor, float offset) { return fmaf(x, factor, offset); }

__global__ void __launch_bounds__(threads)
    scale_elements(const float* x, float* y, const float* factor, const float* offset, Radix inner, Radix channels,
                   std::int64_t count, bool narrow) {
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  std::int64_t rest = i;
  take_digit(rest, inner, narrow);
  const std::int64_t c = take_digit(rest, channels, narrow);
  y[i] = scale_shift(x[i], factor[c], offset[c]);
}

/// Four elements a thread: of one channel each (inner in fours), or of four channels (inner 1, channels in fours).
/// `inner` and `channels` count quads.
template <bool four_channels>
__global__ void __launch_bounds__(threads)
    scale_quads(const float4* x, float4* y, const float* factor, const float* offset, Radix inner, Radix channels,
                std::int64_t quads, bool narrow) {
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= quads) return;
  std::int64_t rest = i;
  if constexpr (!four_channels) take_digit(rest, inner, narrow);
  const std::int64_t c = take_digit(rest, channels, narrow);
  float4 f, o;
  if constexpr (four_channels) {
    f = reinterpret_cast<const float4*>(factor)[c];
    o = reinterpret_cast<const float4*>(offset)[c];
  } else {
    f = make_float4(factor[c], factor[c], factor[c], factor[c]);
    o = make_float4(offset[c], offset[c], offset[c], offset[c]);
  }
  const float4 v = x[i];
  y[i] = make_float4(scale_shift(v.x, f.x, o.x), scale_shift(v.y, f.y, o.y), scale_shift(v.z, f.z, o.z),
                     scale_shift(v.w, f.w, o.w));
}

}  // namespace

void batch_norm(const Context& context, const BatchNormParameters& parameters, std::int64_t outer,
                std::int64_t channels, std::int64_t inner, const float* x, float* y, float* workspace) {
  const std::int64_t count = outer * channels * inner;
  if (count == 0) return;
  float* factor = workspace;
  float* offset = workspace + channels;
  const dim3 block(threads);
  launch(context, batch_norm_factors, dim3(blocks_for(channels, threads)), block, 0, parameters, factor, offset,
         channels);
  const bool narrow = count < Radix::narrow_end, aligned = quad_aligned(x, y);
  const auto* x4 = reinterpret_cast<const float4*>(x);
  auto* y4 = reinterpret_cast<float4*>(y);
  const dim3 quad_grid(blocks_for(count / 4, threads));
  // The workspace is aligned, and with channels in fours so is the offset in it.
  if (aligned && inner == 1 && channels % 4 == 0)
    launch(context, scale_quads<true>, quad_grid, block, 0, x4, y4, factor, offset, Radix(1), Radix(channels / 4),
           count / 4, narrow);
  else if (aligned && inner % 4 == 0)
    launch(context, scale_quads<false>, quad_grid, block, 0, x4, y4, factor, offset, Radix(inner / 4), Radix(channels),
           count / 4, narrow);
  else
    launch(context, scale_elements, dim3(blocks_for(count, threads)), block, 0, x, y, factor, offset, Radix(inner),
           Radix(channels), count, narrow);
}

}  // namespace lenslet::cuda
