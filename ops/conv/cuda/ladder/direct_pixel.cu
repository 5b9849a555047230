// The first two steps towards direct_tile (../direct_tile.cu), kept so that each step can be measured. NHWC, registers
// and caches only: groups of 8 filters, whose weights all lanes of a warp read together.
//
// direct_pixel: one thread an output pixel, over all filters. No synchronisation; but small images have too few pixels
// to fill the device, and a thread reads its window again for each group of filters.
// direct_block: one thread a pixel and group of 8 filters, K/8 times as many threads: 13.9 us for 91 (64x56x56 -> 64,
// 1x1). But windows of neighbouring pixels overlap, and each thread reads all of its own through the caches.
// direct_tile_padded.cpp ends that.

#include "ops/conv/cuda/ladder/direct_pixel.h"

#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/direct_mappings.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 128;

/// w in group_filters()' format.
struct PixelCall : ConvCall<> {
  int pixels;  ///< N * p * q
  int groups, groups_a_thread;
  FastDivider divide_p, divide_q;
};

/// Adds value * w[0..8).
__device__ void multiply_add(float (&acc)[group_floats], float value, const float* w) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(w)), high = __ldg(reinterpret_cast<const float4*>(w) + 1);
  const float weights[group_floats] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int k = 0; k < group_floats; ++k) acc[k] = fmaf(value, weights[k], acc[k]);
}

/// `quads`: channels by fours; C must be a multiple of 4.
template <bool quads>
__global__ void __launch_bounds__(threads) direct_pixel(const __grid_constant__ PixelCall call) {
  wait_for_previous();
  const int pixel = static_cast<int>(blockIdx.x * threads + threadIdx.x);
  if (pixel >= call.pixels) return;
  int image = pixel;
  const int q = call.divide_q.split(image), p = call.divide_p.split(image);
  const int top = p * call.stride_h - call.pad_top, left = q * call.stride_w - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(image) * call.height * call.width * call.c;
  const int w_tap = call.groups * group_floats, w_channel = call.r * call.s * w_tap;

  const int first_group = static_cast<int>(blockIdx.y) * call.groups_a_thread;
  const int last_group = min(first_group + call.groups_a_thread, call.groups);
  for (int group = first_group; group < last_group; ++group) {
    float acc[group_floats] = {};
    for (int r = 0; r < call.r; ++r) {
      const int h = top + r * call.dilation_h;
      if (h < 0 || h >= call.height) continue;
      for (int s = 0; s < call.s; ++s) {
        const int column = left + s * call.dilation_w;
        if (column < 0 || column >= call.width) continue;
        const float* from = x + (h * call.width + column) * call.c;
        const float* w = call.w + (r * call.s + s) * w_tap + group * group_floats;
        if constexpr (quads) {
          for (int c = 0; c < call.c; c += 4, w += 4 * w_channel) {
            const float4 values = *reinterpret_cast<const float4*>(from + c);
            multiply_add(acc, values.x, w);
            multiply_add(acc, values.y, w + w_channel);
            multiply_add(acc, values.z, w + 2 * w_channel);
            multiply_add(acc, values.w, w + 3 * w_channel);
          }
        } else {
          for (int c = 0; c < call.c; ++c, w += w_channel) multiply_add(acc, from[c], w);
        }
      }
    }
    const int first_k = group * group_floats;
    const std::int64_t at = static_cast<std::int64_t>(pixel) * call.k + first_k;
#pragma unroll
    for (int i = 0; i < group_floats; ++i) {
      if (first_k + i >= call.k) break;
      float sum = acc[i];
      if (call.bias != nullptr) sum += call.bias[first_k + i];
      if (call.residual != nullptr) sum += call.residual[at + i];
      call.y[at + i] = call.activation(sum);
    }
  }
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_direct_pixel(const ConvProblem& p, bool all_filters, bool quads) {
  const int pixels = static_cast<int>(p.n * p.p * p.q);
  const int groups = static_cast<int>(group_count(p.k, group_floats));
  const int groups_a_thread = all_filters ? groups : 1;
  const PixelCall call{ConvCall<>(p), pixels, groups, groups_a_thread, FastDivider(p.p), FastDivider(p.q)};
  const dim3 grid(blocks_for(pixels, threads), static_cast<unsigned>(groups / groups_a_thread));
  return std::make_unique<OneLaunch<PixelCall>>(p, call, quads ? direct_pixel<true> : direct_pixel<false>, grid,
                                                threads);
}

}  // namespace lenslet::cuda
