#pragma once
// What the kernels of depthwise have in common, whatever the type of their tensors.

#include <span>
#include <string_view>

#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {

inline constexpr int max_depthwise_threads = 128;

/// w [R][S][K] of the type of x. C and K count room (aligned_nhwc), which is computed like channels. An item is what
/// one thread computes; items count channels first, then tiles along q, chunks of channels, tiles along p, images.
/// There is one chunk, but of strips.
struct DepthwiseCall : UntypedConvCall {
  int items, rows, biases;                                           ///< rows: of a strip; biases: K without room
  FastDivider channel_groups, tiles_q, chunks, tiles_p, multiplier;  ///< channel_groups: of a chunk
};

/// Where an item lies that is no strip.
struct DepthwisePlace {
  int channel, q, p, image;
  LENSLET_HOST_DEVICE DepthwisePlace(const DepthwiseCall& call, int item, int lanes, int tile_p, int tile_q) {
    channel = call.channel_groups.split(item) * lanes;
    q = call.tiles_q.split(item) * tile_q;
    p = call.tiles_p.split(item) * tile_p;
    image = item;
  }
};

/// The height of tiles that are strips: the plan says how many rows they have.
inline constexpr int any_height = 0;

/// A kernel with the filters that it is for and what a thread of it computes.
struct DepthwiseVariant {
  std::string_view name;
  void (*kernel)(DepthwiseCall);
  int size, stride;           ///< 0: any
  int lanes, tile_p, tile_q;  ///< tile_p: or any_height
};

/// Those for tensors of 16 bit, in the order in which they are preferred. depthwise_half.cu.
std::span<const DepthwiseVariant> half_depthwise_variants(DType storage);

}  // namespace lenslet::cuda
