#pragma once
// Shared by the depthwise kernels of all element types.

#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/depthwise.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {

/// w [R][S][K] of x's type. C and K include padding channels (aligned_nhwc), which are computed too. An item is one
/// thread's work; items count channels first, then tiles along q, chunks of channels, tiles along p, images. Only
/// strips have more than one chunk.
struct DepthwiseCall : UntypedConvCall {
  int items, rows, biases;                                           ///< rows: of a strip; biases: K without padding
  FastDivider channel_groups, tiles_q, chunks, tiles_p, multiplier;  ///< channel_groups: in a chunk
};

/// Coordinates of an item of any kernel but strips.
struct DepthwisePlace {
  int channel, q, p, image;
  LENSLET_HOST_DEVICE DepthwisePlace(const DepthwiseCall& call, int item, int lanes, int tile_p, int tile_q) {
    channel = call.channel_groups.split(item) * lanes;
    q = call.tiles_q.split(item) * tile_q;
    p = call.tiles_p.split(item) * tile_p;
    image = item;
  }
};

/// The channels that neighbouring filters of one pixel read where there is a channel multiplier: at most two, or as
/// many as there are filters. channels 0: each filter has its own.
template <int filters, int channels>
struct FilterChannels {
  static_assert(channels == 2 || channels == filters);
  int first;              ///< offset in x
  int further[channels];  ///< offsets from the first
  int of_first;           ///< filters that read the first, where there are at most two

  LENSLET_HOST_DEVICE FilterChannels(const DepthwiseCall& call, int filter) {
    const auto channel = [&](int k) { return static_cast<int>(call.multiplier.divide(static_cast<unsigned>(k))); };
    first = channel(filter);
    of_first = (first + 1) * static_cast<int>(call.multiplier.divisor()) - filter;
    for (int i = 0; i < channels; ++i) {
      const int at = channels == filters ? i : i * (filters - 1);
      further[i] = channel(filter + at) - first;
    }
  }
  /// The value that filter i multiplies.
  LENSLET_HOST_DEVICE float operator()(const float (&values)[channels], int i) const {
    return channels == filters ? values[i % channels] : i < of_first ? values[0] : values[1 % channels];
  }
};
template <int filters>
struct FilterChannels<filters, 0> {
  int first;
  LENSLET_HOST_DEVICE FilterChannels(const DepthwiseCall&, int filter) : first(filter) {}
};

/// multiply(tap, h, width, inside) for all taps of the window at (top, left), in order.
template <typename Multiply>
__device__ __forceinline__ void for_each_tap(const DepthwiseCall& call, int top, int left, const Multiply& multiply) {
  if (call.s >= long_row) {
    for (int r = 0; r < call.r; ++r) {
      const int h = top + r * call.dilation_h;
      if (h < 0 || h >= call.height) continue;
#pragma unroll 4
      for (int s = 0; s < call.s; ++s) {
        const int width = left + s * call.dilation_w;
        multiply(r * call.s + s, h, width, width >= 0 && width < call.width);
      }
    }
  } else {
    const int taps = call.r * call.s;
    int r = 0, s = 0;
#pragma unroll 4
    for (int tap = 0; tap < taps; ++tap) {
      const int h = top + r * call.dilation_h, width = left + s * call.dilation_w;
      multiply(tap, h, width, h >= 0 && h < call.height && width >= 0 && width < call.width);
      if (++s == call.s) s = 0, ++r;
    }
  }
}

using DepthwiseFunction = void (*)(DepthwiseCall);
/// The kernel of a variant of half_depthwise_variants. depthwise_half.cu.
DepthwiseFunction half_depthwise_kernel(DType storage, std::size_t variant);

}  // namespace lenslet::cuda
