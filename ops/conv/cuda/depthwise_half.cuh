#pragma once
// Start and epilogue of the depthwise kernels for 16-bit tensors.

#include "base/cuda/half_mma.cuh"
#include "ops/conv/cuda/depthwise.cuh"

namespace lenslet::cuda {

/// Offsets in x or y of an item's first channel, and of its pixel's.
template <typename T>
__device__ const T* image_of(const void* x, int image, int height, int width, int channels) {
  return static_cast<const T*>(x) + static_cast<std::int64_t>(image) * height * width * channels;
}

/// The bias of `lanes` channels, read by single floats: the model's bias may be unaligned.
template <int lanes>
__device__ void start(float (&sum)[lanes], const DepthwiseCall& call, int channel) {
  if (channel + lanes <= call.biases) {
#pragma unroll
    for (int i = 0; i < lanes; ++i) sum[i] = call.bias == nullptr ? 0.0F : call.bias[channel + i];
  } else {
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      sum[i] = call.bias == nullptr || channel + i >= call.biases ? 0.0F : call.bias[channel + i];
  }
}

/// 32-bit words of one access.
template <int words>
struct alignas(4 * words) Words {
  std::uint32_t at[words];
};

/// Epilogue of every output: adds the residual, activates and stores.
template <typename T>
class EpilogueStore {
 public:
  __device__ explicit EpilogueStore(const DepthwiseCall& call)
      : call_(call), clamp_(call.activation.clamp().low, call.activation.clamp().high) {}

  /// Any activation; `at` is an offset in elements of y.
  template <int lanes>
  __device__ void operator()(float (&sum)[lanes], std::int64_t at) const {
    add_residual(sum, at);
    if (!call_.activation.is_clamp()) call_.activation.apply_for_halves(sum);
    store(sum, at);
  }
  /// Short form without a residual and with a clamp as activation, for kernels that unroll it often.
  template <int lanes>
  __device__ void store(const float (&sum)[lanes], std::int64_t at) const {
    T* const y = static_cast<T*>(call_.y) + at;
    if constexpr (lanes == 1) {
      y->bits = static_cast<std::uint16_t>(clamp_(narrowed_pair<T>(sum[0], sum[0])));
    } else {
      Words<lanes / 2> result;
#pragma unroll
      for (int i = 0; i < lanes / 2; ++i) result.at[i] = clamp_(narrowed_pair<T>(sum[2 * i], sum[2 * i + 1]));
      *reinterpret_cast<Words<lanes / 2>*>(y) = result;
    }
  }

 private:
  template <int lanes>
  __device__ void add_residual(float (&sum)[lanes], std::int64_t at) const {
    if (call_.residual == nullptr) return;
    const T* const residual = static_cast<const T*>(call_.residual) + at;
    if constexpr (lanes == 1) {
      sum[0] += widened(*residual);
    } else {
      const auto added = *reinterpret_cast<const Words<lanes / 2>*>(residual);
#pragma unroll
      for (int i = 0; i < lanes / 2; ++i) {
        const float2 pair = widened_pair<T>(added.at[i]);
        sum[2 * i] += pair.x;
        sum[2 * i + 1] += pair.y;
      }
    }
  }

  const DepthwiseCall& call_;
  PairClamp<T> clamp_;  ///< no-op where the activation is not a clamp
};

template <typename T, int words>
__device__ void widen(float (&to)[2 * words], const std::uint32_t (&pairs)[words]) {
#pragma unroll
  for (int i = 0; i < words; ++i) {
    const float2 pair = widened_pair<T>(pairs[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

/// The epilogue of a tile. Place: channel, q, p, image as in DepthwisePlace.
template <typename T, typename Place, int tile_p, int tile_q, int lanes>
__device__ void finish_tile(const DepthwiseCall& call, const Place& place, float (&acc)[tile_p][tile_q][lanes]) {
  const EpilogueStore<T> finish(call);
  const std::int64_t image = static_cast<std::int64_t>(place.image) * call.p * call.q * call.y_pixel;
  const auto exists = [&](int p, int q) { return place.p + p < call.p && place.q + q < call.q; };
  const auto offset = [&](int p, int q) {
    return image + ((place.p + p) * call.q + place.q + q) * call.y_pixel + place.channel;
  };
  if (call.residual == nullptr && call.activation.is_clamp()) {
#pragma unroll
    for (int p = 0; p < tile_p; ++p)
#pragma unroll
      for (int q = 0; q < tile_q; ++q)
        if (exists(p, q)) finish.store(acc[p][q], offset(p, q));
    return;
  }
  // Not unrolled, to keep the code small; register indices are constants within the body.
#pragma unroll 1
  for (int i = 0; i < tile_p * tile_q; ++i) {
    float sum[lanes];
#pragma unroll
    for (int known = 0; known < tile_p * tile_q; ++known)
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane)
        if (i == known) sum[lane] = acc[known / tile_q][known % tile_q][lane];
    if (exists(i / tile_q, i % tile_q)) finish(sum, offset(i / tile_q, i % tile_q));
  }
}

}  // namespace lenslet::cuda
