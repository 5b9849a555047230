// The kernels of depthwise for tensors of 16 bit: eight channels a thread, 16 bytes a load, where there are so many;
// sums in float. Filters are of 16 bit, too, and widened on use: that is exact.

#include "ops/conv/cuda/depthwise.h"
#include "ops/conv/cuda/half_mma.cuh"

namespace lenslet::cuda {
namespace {

/// Where the first element of an item's channels lies in x or y, and of a pixel's.
template <typename T>
__device__ const T* image_of(const void* x, int image, int height, int width, int channels) {
  return static_cast<const T*>(x) + static_cast<std::int64_t>(image) * height * width * channels;
}

/// The bias of `lanes` channels, what sums start from. Where a model's bias lies is not for us to say, so it is read by
/// single floats.
template <int lanes>
__device__ void start(float (&sum)[lanes], const float* bias, int channel) {
#pragma unroll
  for (int i = 0; i < lanes; ++i) sum[i] = bias == nullptr ? 0.0F : bias[channel + i];
}

/// Adds the residual, activates and stores; `at` counts elements within the output image.
template <typename T, int lanes>
__device__ void finish(const DepthwiseCall& call, float (&sum)[lanes], int image, int at) {
  const std::int64_t offset = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel + at;
  const T* residual = static_cast<const T*>(call.residual) + offset;
  T* y = static_cast<T*>(call.y) + offset;
  if constexpr (lanes == 1) {
    if (call.residual != nullptr) sum[0] += widened(*residual);
    *y = narrowed<T>(call.activation(sum[0]));
  } else {
    using Vector = std::conditional_t<lanes == 8, uint4, std::uint32_t>;
    if (call.residual != nullptr) {
      const Vector added = *reinterpret_cast<const Vector*>(residual);
#pragma unroll
      for (int i = 0; i < lanes / 2; ++i) {
        const float2 pair = widened_pair<T>(word_of(added, i));
        sum[2 * i] += pair.x;
        sum[2 * i + 1] += pair.y;
      }
    }
    if constexpr (lanes == 8) {
      const float4 low = call.activation(float4{sum[0], sum[1], sum[2], sum[3]});
      const float4 high = call.activation(float4{sum[4], sum[5], sum[6], sum[7]});
      *reinterpret_cast<uint4*>(y) = {narrowed_pair<T>(low.x, low.y), narrowed_pair<T>(low.z, low.w),
                                      narrowed_pair<T>(high.x, high.y), narrowed_pair<T>(high.z, high.w)};
    } else {
      *reinterpret_cast<std::uint32_t*>(y) = narrowed_pair<T>(call.activation(sum[0]), call.activation(sum[1]));
    }
  }
}

/// One row of inputs, `columns` from `left` on, of 2 * words channels.
template <typename T, int columns, int words>
__device__ void load_row(std::uint32_t (&row)[columns][words], const T* x, const DepthwiseCall& call, int h, int left) {
  const bool row_inside = h >= 0 && h < call.height;
#pragma unroll
  for (int column = 0; column < columns; ++column) {
    const int width = left + column;
    load_or_zero(row[column], x + (h * call.width + width) * call.c, row_inside && width >= 0 && width < call.width);
  }
}

template <typename T, int tile_p, int tile_q, int lanes>
__device__ void finish_tile(const DepthwiseCall& call, const DepthwisePlace& place,
                            float (&sums)[tile_p][tile_q][lanes]) {
#pragma unroll
  for (int p = 0; p < tile_p; ++p)
#pragma unroll
    for (int q = 0; q < tile_q; ++q)
      if (place.p + p < call.p && place.q + q < call.q)
        finish<T>(call, sums[p][q], place.image, ((place.p + p) * call.q + place.q + q) * call.y_pixel + place.channel);
}

/// tile_p x tile_q outputs of 2 * words channels by 3x3, out of a window and taps that are all in registers before the
/// first multiplication: the taps before the kernel ahead has ended. Two channels at a time are widened and multiplied.
template <typename T, int stride, int tile_p, int tile_q, int words>
__global__ void __launch_bounds__(max_depthwise_threads, 1)
    depthwise_window(const __grid_constant__ DepthwiseCall call) {
  constexpr int size = 3, rows = (tile_p - 1) * stride + size, columns = (tile_q - 1) * stride + size;
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const DepthwisePlace place(call, min(item, call.items - 1), 2 * words, tile_p, tile_q);
  std::uint32_t taps[size * size][words];
#pragma unroll
  for (int tap = 0; tap < size * size; ++tap)
    load_constant(taps[tap], static_cast<const T*>(call.w) + tap * call.k + place.channel);
  wait_for_previous();
  if (item >= call.items) return;

  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const T* x = image_of<T>(call.x, place.image, call.height, call.width, call.c) + place.channel;
  std::uint32_t window[rows][columns][words];
#pragma unroll
  for (int row = 0; row < rows; ++row) load_row(window[row], x, call, top + row, left);
  float bias[2 * words], sums[tile_p][tile_q][2 * words];
  start(bias, call.bias, place.channel);
#pragma unroll
  for (int j = 0; j < words; ++j) {
    float2 tap[size][size];
#pragma unroll
    for (int i = 0; i < size * size; ++i) tap[i / size][i % size] = widened_pair<T>(taps[i][j]);
#pragma unroll
    for (int i = 0; i < tile_p * tile_q; ++i) {
      sums[i / tile_q][i % tile_q][2 * j] = bias[2 * j];
      sums[i / tile_q][i % tile_q][2 * j + 1] = bias[2 * j + 1];
    }
#pragma unroll
    for (int row = 0; row < rows; ++row)
#pragma unroll
      for (int column = 0; column < columns; ++column) {
        const float2 value = widened_pair<T>(window[row][column][j]);
#pragma unroll
        for (int p = 0; p < tile_p; ++p)
#pragma unroll
          for (int q = 0; q < tile_q; ++q) {
            const int r = row - p * stride, s = column - q * stride;
            if (r < 0 || r >= size || s < 0 || s >= size) continue;
            float(&sum)[2 * words] = sums[p][q];
            sum[2 * j] = fmaf(value.x, tap[r][s].x, sum[2 * j]);
            sum[2 * j + 1] = fmaf(value.y, tap[r][s].y, sum[2 * j + 1]);
          }
      }
  }
  finish_tile<T>(call, place, sums);
}

/// The same for larger filters, whose window does not fit into registers: `ahead` rows of it are under way while one is
/// multiplied, and taps are read where they are used.
template <typename T, int size, int stride, int tile_p, int tile_q, int ahead>
__global__ void __launch_bounds__(max_depthwise_threads, 1) depthwise_rows(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  constexpr int words = 4, rows = (tile_p - 1) * stride + size, columns = (tile_q - 1) * stride + size;
  static_assert(ahead <= rows);
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, 2 * words, tile_p, tile_q);
  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const T* x = image_of<T>(call.x, place.image, call.height, call.width, call.c) + place.channel;
  const T* w = static_cast<const T*>(call.w) + place.channel;
  std::uint32_t window[ahead][columns][words];
#pragma unroll
  for (int row = 0; row < ahead; ++row) load_row(window[row], x, call, top + row, left);
  float sums[tile_p][tile_q][2 * words];
  start(sums[0][0], call.bias, place.channel);
#pragma unroll
  for (int i = 1; i < tile_p * tile_q; ++i)
#pragma unroll
    for (int lane = 0; lane < 2 * words; ++lane) sums[i / tile_q][i % tile_q][lane] = sums[0][0][lane];
#pragma unroll
  for (int row = 0; row < rows; ++row) {
    std::uint32_t taps[tile_p][size][words];
#pragma unroll
    for (int p = 0; p < tile_p; ++p)
#pragma unroll
      for (int s = 0; s < size; ++s) {
        const int r = row - p * stride;
        if (r >= 0 && r < size) load_constant(taps[p][s], w + (r * size + s) * call.k);
      }
#pragma unroll
    for (int j = 0; j < words; ++j) {
      float2 value[columns];
#pragma unroll
      for (int column = 0; column < columns; ++column) value[column] = widened_pair<T>(window[row % ahead][column][j]);
#pragma unroll
      for (int p = 0; p < tile_p; ++p) {
        if (row - p * stride < 0 || row - p * stride >= size) continue;
#pragma unroll
        for (int s = 0; s < size; ++s) {
          const float2 tap = widened_pair<T>(taps[p][s][j]);
#pragma unroll
          for (int q = 0; q < tile_q; ++q) {
            float(&sum)[2 * words] = sums[p][q];
            sum[2 * j] = fmaf(value[q * stride + s].x, tap.x, sum[2 * j]);
            sum[2 * j + 1] = fmaf(value[q * stride + s].y, tap.y, sum[2 * j + 1]);
          }
        }
      }
    }
    if (row + ahead < rows) load_row(window[row % ahead], x, call, top + row + ahead, left);
  }
  finish_tile<T>(call, place, sums);
}

/// Any filter, stride and dilation; one lane: any multiplier.
template <typename T, int lanes>
__global__ void __launch_bounds__(max_depthwise_threads) depthwise_any(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, lanes, 1, 1);
  const int top = place.p * call.stride_h - call.pad_top, left = place.q * call.stride_w - call.pad_left;
  const T* x = image_of<T>(call.x, place.image, call.height, call.width, call.c) +
               static_cast<int>(call.multiplier.divide(static_cast<unsigned>(place.channel)));
  const T* w = static_cast<const T*>(call.w) + place.channel;
  float sum[lanes];
  start(sum, call.bias, place.channel);
  for (int r = 0; r < call.r; ++r) {
    const int h = top + r * call.dilation_h;
    if (h < 0 || h >= call.height) continue;
#pragma unroll 4
    for (int s = 0; s < call.s; ++s) {
      const int width = left + s * call.dilation_w;
      const bool inside = width >= 0 && width < call.width;
      const T* const from = x + (h * call.width + width) * call.c;
      const T* const tap_from = w + (r * call.s + s) * call.k;
      if constexpr (lanes == 1) {
        sum[0] = fmaf(inside ? widened(*from) : 0.0F, widened(*tap_from), sum[0]);
      } else {
        std::uint32_t value[lanes / 2], tap[lanes / 2];
        load_or_zero(value, from, inside);
        load_constant(tap, tap_from);
#pragma unroll
        for (int j = 0; j < lanes / 2; ++j) {
          const float2 v = widened_pair<T>(value[j]), t = widened_pair<T>(tap[j]);
          sum[2 * j] = fmaf(v.x, t.x, sum[2 * j]);
          sum[2 * j + 1] = fmaf(v.y, t.y, sum[2 * j + 1]);
        }
      }
    }
  }
  finish<T>(call, sum, place.image, (place.p * call.q + place.q) * call.y_pixel + place.channel);
}

template <typename T, int stride, int tile_p, int tile_q, int words = 4>
constexpr DepthwiseVariant window(std::string_view name) {
  return {name, depthwise_window<T, stride, tile_p, tile_q, words>, 3, stride, 2 * words, tile_p, tile_q};
}
template <typename T, int size, int stride, int tile_p, int tile_q, int ahead>
constexpr DepthwiseVariant rows(std::string_view name) {
  return {name, depthwise_rows<T, size, stride, tile_p, tile_q, ahead>, size, stride, 8, tile_p, tile_q};
}

/// As `variants` of depthwise.cu. High tiles rather than wide ones: columns that two threads read are in L1 for the
/// second, because threads side by side are in one block; rows are not.
template <typename T>
constexpr DepthwiseVariant variants[] = {
    window<T, 1, 4, 2>("4x2"),
    window<T, 1, 2, 2>("2x2"),
    window<T, 1, 1, 2>("1x2"),
    window<T, 1, 1, 1>("1x1"),
    window<T, 2, 2, 2>("2x2"),
    window<T, 2, 1, 2>("1x2"),
    window<T, 2, 1, 1>("1x1"),
    rows<T, 5, 1, 2, 4, 3>("2x4"),
    rows<T, 5, 1, 1, 2, 5>("1x2"),
    rows<T, 5, 1, 1, 1, 5>("1x1"),
    rows<T, 5, 2, 2, 2, 3>("2x2"),
    rows<T, 5, 2, 1, 1, 5>("1x1"),
    rows<T, 7, 1, 2, 4, 2>("2x4"),
    rows<T, 7, 1, 1, 1, 4>("1x1"),
    {"any8", depthwise_any<T, 8>, 0, 0, 8, 1, 1},
    // Channels that are no multiple of eight, as ShuffleNet has them.
    window<T, 1, 4, 4, 1>("4x4by2"),
    window<T, 2, 2, 4, 1>("2x4by2"),
    {"any2", depthwise_any<T, 2>, 0, 0, 2, 1, 1},
    {"any1", depthwise_any<T, 1>, 0, 0, 1, 1, 1},
};

}  // namespace

std::span<const DepthwiseVariant> half_depthwise_variants(DType storage) {
  if (storage == DType::bf16) return variants<BFloat16>;
  return variants<Float16>;
}

}  // namespace lenslet::cuda
