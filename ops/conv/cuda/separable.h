#pragma once
// Arguments of the separable kernels, which are compiled per element type.

#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// filters [groups][chunks][2 of k][tiles / 2][lanes] of 16 bytes: fragments of B of two tiles. taps [chunks][4
/// words][channels of a word] of separable_taps words. 16 bits: two taps a word, swapped for odd channels; after the
/// ninth the bias, as the sum of two numbers. float32: nine taps and the bias. biases [groups][8 * tiles]: of the 1x1
/// convolution, in float.
struct SeparableCall {
  int height, width, c, x_pixel;  ///< x_pixel: elements from pixel to pixel
  int p, q, k, y_pixel, k_pitch;  ///< k_pitch: the residual's pixel pitch
  int pad_top, pad_left;
  int items, turns, chunks, warp_chunks, pixel_warps, channel_warps;
  FastDivider columns, strips;
  DeviceActivation depthwise_activation, activation;
  const void *x = nullptr, *residual = nullptr;
  void* y = nullptr;
  const uint4 *filters = nullptr, *taps = nullptr, *biases = nullptr;
};

using SeparableFunction = void (*)(SeparableCall);
SeparableFunction separable_of_fp16(std::int64_t stride, const SeparableTiling& tiling);
SeparableFunction separable_of_bf16(std::int64_t stride, const SeparableTiling& tiling);
SeparableFunction separable_of_tf32(std::int64_t stride, const SeparableTiling& tiling);

}  // namespace lenslet::cuda
