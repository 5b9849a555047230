#pragma once
// The separable kernels: the depthwise result stays in registers.
//
// For the pixels of rows l / 4 and l / 4 + 8 of mma.sync's operand A, lane l loads 16 bytes of a 64-byte chunk of
// channels, the t-th, t = l % 4: four words, each two 16-bit channels or one float32.
//
// 16 bits: both convolutions use mma.sync. Word j of a tap's pixel is already a fragment of A for eight channels (word
// j of each t). A matrix B with this tap's weights on its diagonal multiplies each channel by its own weight; k 16
// holds two taps. Seven of eight products are with zeros, and still one instruction replaces 16 fma and conversions.
// The accumulators are laid out as operand A of the 1x1 convolution: they are activated, rounded, and multiplied by
// filters permuted to match, as in thin_mma. An infinity also makes NaN of its neighbouring channels. float32: taps are
// summed by fma, then rounded to TF32.
//
// A lane's outputs are above each other, so that an input row serves several. Filters and taps go to shared memory
// before the previous kernel has ended. Where pixels are few, warps split the channels and reduce in a fixed order.

#include <type_traits>
#include <utility>

#include "base/cuda/fast_divider.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/separable.h"

namespace lenslet::cuda {
namespace {

constexpr int separable_size = 3;
template <typename T>
inline constexpr bool is_float = std::is_same_v<T, float>;
/// Elements of a word; adjacent channels and filters of a lane; tiles of eight filters in such a set.
template <typename T>
inline constexpr int word_elems = 4 / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int lane_elems = 4 * word_elems<T>;
template <typename T>
inline constexpr int set_tiles = lane_elems<T> / 2;

/// An item's outputs: two rows of `columns` adjacent ones.
struct Item {
  int image, p, q;
  bool exists;
  template <int columns>
  __device__ static Item at(const SeparableCall& call, int item) {
    const bool exists = item < call.items;
    int rest = exists ? item : 0;
    const int q = call.columns.split(rest) * columns;
    const int p = call.strips.split(rest) * 2;
    return {rest, p, q, exists};
  }
  /// Index in y, over all images, of column `column` of the first row.
  __device__ int pixel(const SeparableCall& call, int column) const {
    return (image * call.p + p) * call.q + q + column;
  }
  /// Rows of the item that exist in that column.
  __device__ int rows(const SeparableCall& call, int column) const {
    return !exists || q + column >= call.q ? 0 : p + 1 < call.p ? 2 : 1;
  }
};

/// Loads 16 bytes at `from` + row * row_bytes + column * pixel_bytes if bit `bit` of `inside` is set, else zeros.
/// Addresses and predicates are computed in PTX: otherwise the compiler keeps all of them in registers.
template <int row, int column, int bit>
__device__ inline void load_if(std::uint32_t (&to)[4], const void* from, int row_bytes, int pixel_bytes,
                               unsigned inside) {
  asm volatile(
      "{\n"
      "  .reg .pred inside;\n"
      "  .reg .b32 masked;\n"
      "  .reg .s64 at;\n"
      "  and.b32 masked, %7, %10;\n"
      "  setp.ne.u32 inside, masked, 0;\n"
      "  mad.wide.s32 at, %5, %8, %4;\n"
      "  mad.wide.s32 at, %6, %9, at;\n"
      "  mov.b32 %0, 0;\n"
      "  mov.b32 %1, 0;\n"
      "  mov.b32 %2, 0;\n"
      "  mov.b32 %3, 0;\n"
      "  @inside ld.global.v4.b32 {%0, %1, %2, %3}, [at];\n"
      "}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "l"(from), "r"(row_bytes), "r"(pixel_bytes), "r"(inside), "n"(row), "n"(column), "n"(1 << bit));
}
template <int height, int width, int... i>
__device__ inline void load_window(std::uint32_t (&window)[height][width][4], const void* from, int row_bytes,
                                   int pixel_bytes, unsigned inside, std::integer_sequence<int, i...>) {
  (load_if<i / width, i % width, i>(window[i / width][i % width], from, row_bytes, pixel_bytes, inside), ...);
}

/// Activation in the epilogue: floats one by one; 16 bits are clamped as pairs after rounding.
template <typename T>
struct Activator {
  DeviceActivation activation;
  PairClamp<T> clamp;
  bool plain;
  __device__ explicit Activator(const DeviceActivation& of)
      : activation(of), clamp(of.clamp().low, of.clamp().high), plain(of.is_clamp()) {}
  template <int count>
  __device__ void before_rounding(float (&v)[count]) const {
    if (!plain) activation.apply_for_halves(v);
  }
  __device__ std::uint32_t rounded(float low, float high) const { return clamp(narrowed_pair<T>(low, high)); }
};
template <>
struct Activator<float> {
  DeviceActivation activation;
  Clamp clamp;
  bool plain;
  __device__ explicit Activator(const DeviceActivation& of) : activation(of), clamp(of.clamp()), plain(of.is_clamp()) {}
  template <int count>
  __device__ void before_rounding(float (&v)[count]) const {
    if (plain) {
#pragma unroll
      for (float& value : v) value = clamp(value);
    } else {
#pragma unroll
      for (float& value : v) value = activation(value);
    }
  }
};

/// The lane's first filter of set `set`.
template <typename T>
__device__ inline int first_filter(int set) {
  return (set * 4 + static_cast<int>(threadIdx.x) % 4) * lane_elems<T>;
}

/// The residual of two rows of outputs (`rows` of them exist) for the lane's filters of a set, as stored.
template <typename T>
__device__ inline void load_residual(std::uint32_t (&added)[2][4], const SeparableCall& call, int pixel, int rows,
                                     int filter) {
  const bool exists = filter < call.k;
  const T* const residual = static_cast<const T*>(call.residual) + std::int64_t{pixel} * call.k_pitch + filter;
  load_or_zero(added[0], residual, exists && rows > 0);
  load_or_zero(added[1], residual + std::int64_t{call.q} * call.k_pitch, exists && rows > 1);
}

/// Epilogue of a set's accumulators for two rows of outputs, lane_elems filters a lane; `bias` is theirs.
template <typename T>
__device__ inline void finish(const SeparableCall& call, const Activator<T>& activator, int pixel, int rows, int filter,
                              const float* bias, const float (&acc)[set_tiles<T>][4],
                              const std::uint32_t (&added)[2][4]) {
  constexpr int elems = lane_elems<T>;
  if (filter >= call.k || rows == 0) return;
  float v[2][elems];
#pragma unroll
  for (int i = 0; i < elems; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(bias + i);
    v[0][i] = four.x, v[0][i + 1] = four.y, v[0][i + 2] = four.z, v[0][i + 3] = four.w;
  }
#pragma unroll
  for (int i = 2 * elems - 1; i >= 0; --i)
    v[i / elems][i % elems] = acc[i % elems / 2][i / elems * 2 + i % 2] + v[0][i % elems];
  if (call.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (is_float<T>) {
        v[i / 4][i % 4] += __uint_as_float(added[i / 4][i % 4]);
      } else {
        const float2 pair = widened_pair<T>(added[i / 4][i % 4]);
        v[i / 4][i % 4 * 2] += pair.x;
        v[i / 4][i % 4 * 2 + 1] += pair.y;
      }
    }
  }
  if (is_float<T> || !activator.plain) {
    // Other activations are long code: not unrolled.
#pragma unroll 1
    for (int turn = 0; turn < 2; ++turn) {
      activator.before_rounding(v[0]);
#pragma unroll
      for (int j = 0; j < elems; ++j) {
        const float done = v[0][j];
        v[0][j] = v[1][j];
        v[1][j] = done;
      }
    }
  }
  T* const y = static_cast<T*>(call.y) + std::int64_t{pixel} * call.y_pixel + filter;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    std::uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (is_float<T>)
        words[j] = __float_as_uint(v[i][j]);
      else
        words[j] = activator.rounded(v[i][2 * j], v[i][2 * j + 1]);
    }
    if (i < rows)
      *reinterpret_cast<uint4*>(y + std::int64_t{i} * call.q * call.y_pixel) =
          uint4{words[0], words[1], words[2], words[3]};
  }
}

/// Builds this lane's fragment of B for depthwise: taps on the diagonal, zeros elsewhere; two 16-bit taps a word.
struct Diagonal {
  std::uint32_t all, even, odd;  ///< mask of the bias; __byte_perm selectors of taps with even and odd number
  __device__ explicit Diagonal(int lane) {
    const bool on = lane / 8 == lane % 4, high = lane / 4 % 2 != 0;
    all = on ? 0xffffffffU : 0;
    even = !on ? 0x4444U : high ? 0x3244U : 0x4410U;
    odd = !on ? 0x4444U : high ? 0x1044U : 0x4432U;
  }
};

/// A pair of ones.
template <typename T>
inline constexpr std::uint32_t ones = std::is_same_v<T, BFloat16> ? 0x3f803f80U : 0x3c003c00U;

template <typename T, int stride, int columns, int tiles>
__global__ void __launch_bounds__(32 * separable_most_warps(stride, columns, tiles), separable_bound_blocks(columns))
    separable_kernel(const __grid_constant__ SeparableCall call) {
  constexpr int height = stride + separable_size, width = (columns - 1) * stride + separable_size;
  constexpr int elems = lane_elems<T>, chunk_elems = 4 * elems, sets = tiles / set_tiles<T>;
  constexpr int chunk_taps = separable_chunk_taps<is_float<T>>, word_taps = chunk_taps / 4;
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, t = lane % 4;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int group = static_cast<int>(blockIdx.y);
  const int pixel_warp = warp % call.pixel_warps, channel_warp = warp / call.pixel_warps;

  // Copies the block's filters, taps and bias.
  constexpr int chunk_filters = 2 * tiles / 2 * 32, group_bias = 2 * tiles;  // uint4
  uint4* const filters = shared;
  uint4* const taps = filters + call.chunks * chunk_filters;
  uint4* const shared_bias = taps + call.chunks * chunk_taps;
  uint4* const first_residual = shared_bias + group_bias;
  const bool adds = call.channel_warps > 1;
  float4* const partial = reinterpret_cast<float4*>(first_residual + (adds ? 2 * blockDim.x : 0));
  const auto copy = [&](uint4* to, const uint4* from, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
      copy_async_16(to + i, from + i, true);
  };
  copy(filters, call.filters + std::int64_t{group} * call.chunks * chunk_filters, call.chunks * chunk_filters);
  copy(taps, call.taps, call.chunks * chunk_taps);
  copy(shared_bias, call.biases + group * group_bias, group_bias);

  const int begin = channel_warp * call.warp_chunks, end = min(begin + call.warp_chunks, call.chunks);
  const int blocks = static_cast<int>(gridDim.x);
  const Activator<T> activator(call.activation), depthwise(call.depthwise_activation);
  const Diagonal diagonal(lane);

  std::uint32_t window[height][width][4];
  const T* x = nullptr;
  unsigned inside = 0;  // bit per pixel of the window
  int next_pixel = 0, next_rows = 0;
  const auto item_of = [&](int turn, int of_warp) {
    return Item::at<columns>(call, (turn * call.pixel_warps + of_warp) * 8 + lane / 4);
  };
  const auto go_to = [&](int turn) {
    const Item item = item_of(turn, pixel_warp);
    const int top = item.p * stride - call.pad_top, left = item.q * stride - call.pad_left;
    x = static_cast<const T*>(call.x) + std::int64_t{item.image} * call.height * call.width * call.x_pixel +
        (top * call.width + left) * call.x_pixel + elems * t;
    unsigned in_width = 0;
#pragma unroll
    for (int i = 0; i < width; ++i)
      if (static_cast<unsigned>(left + i) < static_cast<unsigned>(call.width)) in_width |= 1U << i;
    if (!item.exists) in_width = 0;
    inside = 0;
#pragma unroll
    for (int i = 0; i < height; ++i)
      if (static_cast<unsigned>(top + i) < static_cast<unsigned>(call.height)) inside |= in_width << i * width;
    next_pixel = item.pixel(call, 0);
    next_rows = item.rows(call, 0) | item.rows(call, columns - 1) << 2;
  };
  const int pixel_bytes = call.x_pixel * static_cast<int>(sizeof(T)), row_bytes = call.width * pixel_bytes;
  const auto load = [&](int chunk) {
    const bool channels = chunk * chunk_elems + elems * t < call.c;
    load_window(window, x + chunk * chunk_elems, row_bytes, pixel_bytes, channels ? inside : 0,
                std::make_integer_sequence<int, height * width>());
  };

  int turn = static_cast<int>(blockIdx.x);
  go_to(turn);
  wait_for_previous();
  let_next_start();
  if (begin < end) load(begin);

  for (bool first = true; turn < call.turns; turn += blocks, first = false) {
    const int pixel = next_pixel, rows = next_rows;
    // The warp's first share of the reduction; its residual is loaded meanwhile.
    const int jobs = call.pixel_warps * columns * sets;
    if (adds && call.residual != nullptr && warp < jobs) {
      const Item item = item_of(turn, warp / sets / columns);
      const int column = warp / sets % columns, filter = first_filter<T>(group * sets + warp % sets);
      const T* const from =
          static_cast<const T*>(call.residual) + std::int64_t{item.pixel(call, column)} * call.k_pitch + filter;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (i < item.rows(call, column) && filter < call.k)
          copy_async_16(first_residual + 2 * threadIdx.x + i, from + std::int64_t{i} * call.q * call.k_pitch, true);
    }
    if (first) {
      wait_for_all_copies();
      __syncthreads();
    }

    float acc[columns][tiles][4] = {};
    for (int chunk = begin; chunk < end; ++chunk) {
      if (call.c % elems != 0 && chunk == call.chunks - 1) {
        // Padding channels hold anything, and 0 * NaN is NaN: clears them.
        const int channel = (call.chunks - 1) * chunk_elems + elems * t;
#pragma unroll
        for (int i = 0; i < height * width * 4; ++i) {
          const int at = channel + i % 4 * word_elems<T>;
          const std::uint32_t kept = at + word_elems<T> <= call.c ? 0xffffffffU : at < call.c ? 0xffffU : 0;
          window[i / 4 / width][i / 4 % width][i % 4] &= kept;
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t a[columns][2][2];  // [column][row][word]
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = step * 2 + half;
          const uint4* const lane_taps =
              taps + chunk * chunk_taps + j * word_taps + (is_float<T> ? 3 * t : 2 * (lane / 4));
          const auto pixel_at = [&](int row, int column, int tap) -> std::uint32_t {
            return window[row * stride + tap / separable_size][column * stride + tap % separable_size][j];
          };
          if constexpr (is_float<T>) {
            const uint4 first_taps = lane_taps[0], middle = lane_taps[1], last = lane_taps[2];
            const std::uint32_t tap[taps_of_size] = {first_taps.x, first_taps.y, first_taps.z, first_taps.w, middle.x,
                                                     middle.y,     middle.z,     middle.w,     last.x};
#pragma unroll
            for (int i = 0; i < 2 * columns; ++i) {
              float v[1] = {__uint_as_float(last.y)};
#pragma unroll
              for (int k = 0; k < taps_of_size; ++k)
                v[0] = fmaf(__uint_as_float(pixel_at(i % 2, i / 2, k)), __uint_as_float(tap[k]), v[0]);
              depthwise.before_rounding(v);
              a[i / 2][i % 2][half] = round_to_tf32(v[0]);
            }
          } else {
            const uint4 packed = lane_taps[0];
            const uint2 rest = *reinterpret_cast<const uint2*>(lane_taps + 1);
            const std::uint32_t pairs[5] = {packed.x, packed.y, packed.z, packed.w, rest.x};
            const std::uint32_t bias = rest.y & diagonal.all;
            uint2 tap[5];
#pragma unroll
            for (int i = 0; i < 5; ++i) {
              tap[i].x = __byte_perm(pairs[i], 0, diagonal.even);
              tap[i].y = i == 4 ? bias : __byte_perm(pairs[i], 0, diagonal.odd);
            }
#pragma unroll
            for (int column = 0; column < columns; ++column) {
              float v[4] = {};
#pragma unroll
              for (int i = 0; i < 5; ++i) {
                const int known = min(2 * i + 1, taps_of_size - 1);
                const std::uint32_t pixels[4] = {pixel_at(0, column, 2 * i), pixel_at(1, column, 2 * i),
                                                 i == 4 ? ones<T> : pixel_at(0, column, known),
                                                 i == 4 ? ones<T> : pixel_at(1, column, known)};
                mma<T>(v, pixels, tap[i].x, tap[i].y);
              }
              depthwise.before_rounding(v);
              a[column][0][half] = depthwise.rounded(v[0], v[1]);
              a[column][1][half] = depthwise.rounded(v[2], v[3]);
            }
          }
        }
        if (step == 1) {  // the window is free
          const bool last = chunk + 1 == end;
          if (last) go_to(turn + blocks);
          load(last ? begin : chunk + 1);
        }
#pragma unroll
        for (int pair = 0; pair < tiles / 2; ++pair) {
          const uint4 b = filters[((chunk * 2 + step) * (tiles / 2) + pair) * 32 + lane];
#pragma unroll
          for (int column = 0; column < columns; ++column) {
            const std::uint32_t left[4] = {a[column][0][0], a[column][1][0], a[column][0][1], a[column][1][1]};
            mma<T>(acc[column][2 * pair], left, b.x, b.y);
            mma<T>(acc[column][2 * pair + 1], left, b.z, b.w);
          }
        }
      }
    }

    const float* const bias = reinterpret_cast<const float*>(shared_bias);
    if (!adds) {
#pragma unroll
      for (int i = 0; i < columns * sets; ++i) {
        const int column = i / sets, set = i % sets, here = rows >> 2 * column & 3;
        const int filter = first_filter<T>(group * sets + set);
        float of_set[set_tiles<T>][4];
#pragma unroll
        for (int k = 0; k < 4 * set_tiles<T>; ++k)
          of_set[k / 4][k % 4] = acc[column][set * set_tiles<T> + k / 4][k % 4];
        std::uint32_t added[2][4] = {};
        if (call.residual != nullptr) load_residual<T>(added, call, pixel + column, here, filter);
        finish<T>(call, activator, pixel + column, here, filter, bias + first_filter<T>(set), of_set, added);
      }
      continue;
    }
    // [channel_warp][pixel_warp][column][tile][lane]
    const int of_channels = call.pixel_warps * columns * tiles * 32;
    float4* const mine = partial + channel_warp * of_channels + pixel_warp * columns * tiles * 32 + lane;
#pragma unroll
    for (int i = 0; i < columns * tiles; ++i) {
      const float(&sum)[4] = acc[i / tiles][i % tiles];
      mine[i * 32] = {sum[0], sum[1], sum[2], sum[3]};
    }
    __syncthreads();
    for (int job = warp; job < jobs; job += warps) {
      const int set = job % sets, column = job / sets % columns;
      const float4* const from = partial + (job / sets * tiles + set * set_tiles<T>)*32 + lane;
      float of_set[set_tiles<T>][4] = {};
#pragma unroll 4
      for (int source = 0; source < call.channel_warps; ++source)
#pragma unroll
        for (int i = 0; i < set_tiles<T>; ++i) {
          const float4 sum = from[source * of_channels + i * 32];
          of_set[i][0] += sum.x, of_set[i][1] += sum.y, of_set[i][2] += sum.z, of_set[i][3] += sum.w;
        }
      const Item item = item_of(turn, job / sets / columns);
      const int at = item.pixel(call, column), here = item.rows(call, column);
      const int filter = first_filter<T>(group * sets + set);
      std::uint32_t added[2][4] = {};
      if (call.residual != nullptr) {
        if (job == warp) {
          wait_for_all_copies();
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const uint4 four = first_residual[2 * threadIdx.x + i];
            added[i][0] = four.x, added[i][1] = four.y, added[i][2] = four.z, added[i][3] = four.w;
          }
        } else {
          load_residual<T>(added, call, at, here, filter);
        }
      }
      finish<T>(call, activator, at, here, filter, bias + first_filter<T>(set), of_set, added);
    }
    __syncthreads();
  }
}

/// The kernel instance of a configuration.
template <typename T, int stride>
SeparableFunction separable_function(const SeparableTiling& tiling) {
  if constexpr (stride == 1)
    if (tiling.columns == 2) return separable_kernel<T, stride, 2, 4>;
  switch (tiling.tiles) {
    case 4:
      return separable_kernel<T, stride, 1, 4>;
    case 8:
      return separable_kernel<T, stride, 1, 8>;
    default:
      return separable_kernel<T, stride, 1, 12>;
  }
}

}  // namespace
}  // namespace lenslet::cuda
