#include "ops/movement/layout_convert_cuda.h"

#include <cstdint>
#include <limits>

#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector_bits.cuh"
#include "base/dtypes.h"
#include "ops/movement/strided_copy_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

/// Exchanges a warp's 32 * channels vectors between lane order and memory order, both without bank conflicts: 8 lanes
/// access 8 vectors at a time, which an odd number of channels spreads over all banks; an even one has a padding vector
/// after each 8.
template <int channels>
struct Staging {
  static __device__ constexpr int at(int vector) { return channels % 2 == 0 ? vector + vector / 8 : vector; }
  uint4 vectors[32 * channels + (channels % 2 == 0 ? 4 * channels : 0)];
};

/// Images of 2 to 4 channels; T is an unsigned integer of the element's size. Each thread converts a group: one 16-byte
/// vector of pixels per channel to `channels` vectors of whole pixels, or the reverse. planes: NCHW, pixels: NHWC, in
/// either direction. group_count = N * H*W / (16 / sizeof(T)); groups_per_plane divides by H*W / (16 / sizeof(T)).
template <typename T, int channels, bool to_pixels>
__global__ void __launch_bounds__(threads)
    interleave(const uint4* from, uint4* to, std::uint32_t group_count, FastDivider groups_per_plane) {
  wait_for_previous();
  let_next_start();
  __shared__ Staging<channels> staging[warps];
  constexpr int per_vector = 16 / static_cast<int>(sizeof(T));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Staging<channels>& stage = staging[threadIdx.x / 32];
  const std::uint32_t group = blockIdx.x * threads + threadIdx.x;
  const std::uint32_t image = groups_per_plane.divide(group);
  const std::int64_t plane = groups_per_plane.divisor();
  // Vector c of the planes and vector j of the warp's run of pixels.
  const std::int64_t in_planes = group + image * plane * (channels - 1);
  const std::int64_t in_pixels = std::int64_t{group - lane} * channels + lane;
  const std::int64_t pixel_vectors = std::int64_t{group_count} * channels;

  uint4 in[channels], out[channels];
  if constexpr (to_pixels) {
#pragma unroll
    for (int c = 0; c < channels; ++c) {
      in[c] = make_uint4(0, 0, 0, 0);
      if (group < group_count) in[c] = from[in_planes + c * plane];
    }
#pragma unroll
    for (int j = 0; j < channels; ++j)
      out[j] = vector_of<T>([&](int k) {
        const int at = j * per_vector + k;  // of the thread's elements as pixels: all channels of the first, ...
        return element<T>(in[at % channels], at / channels);
      });
#pragma unroll
    for (int j = 0; j < channels; ++j) stage.vectors[Staging<channels>::at(lane * channels + j)] = out[j];
    __syncwarp();
#pragma unroll
    for (int j = 0; j < channels; ++j)
      if (in_pixels + j * 32 < pixel_vectors)
        to[in_pixels + j * 32] = stage.vectors[Staging<channels>::at(j * 32 + lane)];
  } else {
#pragma unroll
    for (int j = 0; j < channels; ++j) {
      in[j] = make_uint4(0, 0, 0, 0);
      if (in_pixels + j * 32 < pixel_vectors) in[j] = from[in_pixels + j * 32];
    }
#pragma unroll
    for (int j = 0; j < channels; ++j) stage.vectors[Staging<channels>::at(j * 32 + lane)] = in[j];
    __syncwarp();
#pragma unroll
    for (int j = 0; j < channels; ++j) in[j] = stage.vectors[Staging<channels>::at(lane * channels + j)];
#pragma unroll
    for (int c = 0; c < channels; ++c) {
      out[c] = vector_of<T>([&](int k) {
        const int at = k * channels + c;
        return element<T>(in[at / per_vector], at % per_vector);
      });
      if (group < group_count) to[in_planes + c * plane] = out[c];
    }
  }
}

template <typename T, int channels>
void launch_interleave(const Context& context, bool to_pixels, std::int64_t images, std::int64_t groups_per_plane,
                       const void* from, void* to) {
  const std::int64_t groups = images * groups_per_plane;
  launch(context, to_pixels ? interleave<T, channels, true> : interleave<T, channels, false>,
         blocks_for(groups, threads), threads, 0, static_cast<const uint4*>(from), static_cast<uint4*>(to),
         static_cast<std::uint32_t>(groups), FastDivider(static_cast<std::uint32_t>(groups_per_plane)));
}

/// True for 2 to 4 channels of at most 4-byte elements in whole vectors, with 32-bit counts.
bool interleaves(std::size_t element_bytes, const Shape& shape, const void* from, const void* to) {
  const auto plane_bytes = static_cast<std::uint64_t>(shape[2] * shape[3]) * element_bytes;
  const auto addresses = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  return shape[1] >= 2 && shape[1] <= 4 && element_bytes <= 4 && (plane_bytes | addresses) % 16 == 0 &&
         static_cast<std::uint64_t>(shape[0]) * plane_bytes / 16 <= std::numeric_limits<std::int32_t>::max() - threads;
}

}  // namespace

void convert_layout(const Context& context, std::size_t element_bytes, const Shape& shape, const Format& from_format,
                    const Format& to_format, const void* from, void* to) {
  if (shape.elems() == 0) return;
  if (!interleaves(element_bytes, shape, from, to)) {
    const StridedLoops loops(shape, to_format, element_strides(shape, from_format), element_strides(shape, to_format));
    return strided_copy(context, element_bytes, loops, from, to);
  }
  const std::int64_t groups_per_plane = shape[2] * shape[3] * static_cast<std::int64_t>(element_bytes) / 16;
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) <= 4) {
      const auto launch_them = shape[1] == 2   ? launch_interleave<T, 2>
                               : shape[1] == 3 ? launch_interleave<T, 3>
                                               : launch_interleave<T, 4>;
      launch_them(context, to_format == formats::nhwc, shape[0], groups_per_plane, from, to);
    }
  });
}

}  // namespace lenslet::cuda
