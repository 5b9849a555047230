#pragma once
// What the kernels of separable take, and where they are: compiled by the types of their tensors.

#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/separable_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

inline constexpr int taps_of_size = 9;

/// filters [groups][chunks][2 of terms][tiles / 2][lanes] of 16 bytes: two tiles' parts of an operand b. Of each chunk
/// taps [4 words][8 channels][separable_taps] of 32 bits, a tap's weight in the half that it has in an operand b, and
/// the biases, [4 words][8 channels] of float; in float32 [4 words][4 channels][separable_taps], the tenth the bias.
struct SeparableCall {
  int height, width, c, x_pixel;  ///< pixels: elements from one to the next
  int p, q, k, y_pixel, k_room;   ///< k_room: of the residual
  int pad_top, pad_left;
  int items, turns, chunks, block_chunks, warp_chunks, pixel_warps, channel_warps, slices;
  FastDivider columns, strips;
  DeviceActivation depthwise_activation, activation;
  const void *x = nullptr, *residual = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  const uint4* filters = nullptr;
  const uint4* taps = nullptr;
};

using SeparableFunction = void (*)(SeparableCall);
SeparableFunction separable_of_fp16(std::int64_t stride, const SeparableCut& cut);
SeparableFunction separable_of_bf16(std::int64_t stride, const SeparableCut& cut);
SeparableFunction separable_of_tf32(std::int64_t stride, const SeparableCut& cut);

}  // namespace lenslet::cuda
