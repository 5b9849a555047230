// Depthwise kernels for 16-bit tensors with float accumulators. Filters are stored in 16 bits and widened, which is
// exact.

#include <array>
#include <utility>

#include "ops/conv/cuda/depthwise_half.cuh"

namespace lenslet::cuda {
namespace {

/// Coordinates of a strip.
struct StripPlace {
  int channel, q, p, image;
  __device__ StripPlace(const DepthwiseCall& call, int item, int lanes, int tile_q) {
    channel = call.channel_groups.split(item);
    q = call.tiles_q.split(item) * tile_q;
    channel = (channel + call.chunks.split(item) * static_cast<int>(call.channel_groups.divisor())) * lanes;
    p = call.tiles_p.split(item) * call.rows;
    image = item;
  }
};

/// Loads one row of inputs: `columns` from `left` on, of 2 * words channels.
template <typename T, int columns, int words>
__device__ void load_row(std::uint32_t (&row)[columns][words], const T* x, const DepthwiseCall& call, int h, int left) {
  const bool row_inside = h >= 0 && h < call.height;
#pragma unroll
  for (int column = 0; column < columns; ++column) {
    const int width = left + column;
    load_or_zero(row[column], x + (h * call.width + width) * call.c, row_inside && width >= 0 && width < call.width);
  }
}

/// 3x3 strips: call.rows outputs down, tile_q columns, 2 * words channels. A row of inputs is loaded once, one turn of
/// the ring ahead, and added to every output that it contributes to. Taps are loaded and widened before the previous
/// kernel has ended.
// Four blocks a multiprocessor would leave 128 registers a thread, of which bf16 would spill six.
template <typename T, int stride, int tile_q, int words>
__global__ void __launch_bounds__(max_depthwise_threads, std::is_same_v<T, BFloat16> ? 3 : 4)
    depthwise_strip(const __grid_constant__ DepthwiseCall call) {
  constexpr int size = 3, columns = (tile_q - 1) * stride + size, lanes = 2 * words;
  constexpr int ring = stride == 1 ? 3 : 4;  // input rows in flight
  constexpr int unfinished = ring / stride;  // output rows in progress, at most
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const StripPlace place(call, min(item, call.items - 1), lanes, tile_q);
  float tap[size][size][lanes];
#pragma unroll
  for (int i = 0; i < size * size; ++i) {
    std::uint32_t pairs[words];
    load_constant(pairs, static_cast<const T*>(call.w) + i * call.k + place.channel);
    widen<T>(tap[i / size][i % size], pairs);
  }
  wait_for_previous();
  if (item >= call.items) return;

  const int inputs = (min(call.rows, call.p - place.p) - 1) * stride + size;
  const int top = place.p * stride - call.pad_top, left = place.q * stride - call.pad_left;
  const T* x = image_of<T>(call.x, place.image, call.height, call.width, call.c) + (top * call.width + left) * call.c +
               place.channel;
  const auto load_next = [&](std::uint32_t(&window)[columns][words], int row) {
    const bool row_inside = row < inputs && static_cast<unsigned>(top + row) < static_cast<unsigned>(call.height);
#pragma unroll
    for (int column = 0; column < columns; ++column)
      load_or_zero(window[column], x + column * call.c,
                   row_inside && static_cast<unsigned>(left + column) < static_cast<unsigned>(call.width));
    x += call.width * call.c;
  };
  std::uint32_t window[ring][columns][words];
#pragma unroll
  for (int row = 0; row < ring; ++row) load_next(window[row], row);
  let_next_start();
  float bias[lanes];
  start(bias, call, place.channel);
  const EpilogueStore<T> finish(call);
  const bool plain = call.residual == nullptr && call.activation.is_clamp();
  std::int64_t at = static_cast<std::int64_t>(place.image) * call.p * call.q * call.y_pixel +
                    (place.p * call.q + place.q) * call.y_pixel + place.channel;

  float acc[unfinished][tile_q][lanes];
  for (int first = 0;; first += ring) {
#pragma unroll
    for (int turn = 0; turn < ring; ++turn) {
      const int row = first + turn;
      if (row >= inputs) return;
      float value[columns][lanes];
#pragma unroll
      for (int column = 0; column < columns; ++column) widen<T>(value[column], window[turn][column]);
      load_next(window[turn], row + ring);
      // Filter row r goes to the output begun r rows ago. The output above the strip is computed and dropped.
#pragma unroll
      for (int r = size - 1; r >= 0; --r) {
        if ((turn + ring - r) % stride != 0) continue;
        float(&sum)[tile_q][lanes] = acc[(turn + ring - r) / stride % unfinished];
#pragma unroll
        for (int q = 0; q < tile_q; ++q)
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) {
            if (r == 0) sum[q][lane] = bias[lane];
#pragma unroll
            for (int s = 0; s < size; ++s)
              sum[q][lane] = fmaf(value[q * stride + s][lane], tap[r][s][lane], sum[q][lane]);
          }
      }
      if (turn % stride != 0 || row < size - 1) continue;
      float(&finished)[tile_q][lanes] = acc[(turn + ring - size + 1) / stride % unfinished];
      if (plain) {
#pragma unroll
        for (int q = 0; q < tile_q; ++q)
          if (place.q + q < call.q) finish.store(finished[q], at + q * call.y_pixel);
      } else {
#pragma unroll
        for (int q = 0; q < tile_q; ++q)
          if (place.q + q < call.q) finish(finished[q], at + q * call.y_pixel);
      }
      at += call.q * call.y_pixel;
    }
  }
}

/// tile_p x tile_q outputs of eight channels for larger filters: taps do not fit into registers and are read where
/// used. `ahead` rows of inputs are in flight.
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
  let_next_start();
  float acc[tile_p][tile_q][2 * words];
  start(acc[0][0], call, place.channel);
#pragma unroll
  for (int i = 1; i < tile_p * tile_q; ++i)
#pragma unroll
    for (int lane = 0; lane < 2 * words; ++lane) acc[i / tile_q][i % tile_q][lane] = acc[0][0][lane];
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
            float(&sum)[2 * words] = acc[p][q];
            sum[2 * j] = fmaf(value[q * stride + s].x, tap.x, sum[2 * j]);
            sum[2 * j + 1] = fmaf(value[q * stride + s].y, tap.y, sum[2 * j + 1]);
          }
        }
      }
    }
    if (row + ahead < rows) load_row(window[row % ahead], x, call, top + row + ahead, left);
  }
  finish_tile<T>(call, place, acc);
}

/// Any filter, stride and dilation: `lanes` filters of one pixel. Each reads its own channel or, with a channel
/// multiplier, the `channels` of FilterChannels. Every number of lanes gives the same bits.
template <typename T, int lanes, int channels = 0>
__global__ void __launch_bounds__(max_depthwise_threads) depthwise_any(const __grid_constant__ DepthwiseCall call) {
  wait_for_previous();
  let_next_start();
  const int item = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (item >= call.items) return;
  const DepthwisePlace place(call, item, lanes, 1, 1);
  const FilterChannels<lanes, channels> reads(call, place.channel);
  const int top = place.p * call.stride_h - call.pad_top, left = place.q * call.stride_w - call.pad_left;
  const T* x = image_of<T>(call.x, place.image, call.height, call.width, call.c) + reads.first;
  const T* w = static_cast<const T*>(call.w) + place.channel;
  float sum[lanes];
  start(sum, call, place.channel);
  for_each_tap(call, top, left, [&](int tap, int h, int width, bool inside) {
    const T* const from = x + (h * call.width + width) * call.c;
    const T* const weights = w + tap * call.k;
    float value[lanes], weight[lanes];
    if constexpr (channels == 0) {
      std::uint32_t pairs[lanes / 2];
      load_or_zero(pairs, from, inside);
      widen<T>(value, pairs);
    } else {
      // Outside of the image a valid address is read: an `if` could become a branch and split the batch of loads.
      const T* const pixel = inside ? from : x;
      float of_channel[channels];
#pragma unroll
      for (int i = 0; i < channels; ++i) {
        const float read = widened(pixel[reads.further[i]]);
        of_channel[i] = inside ? read : 0.0F;
      }
#pragma unroll
      for (int i = 0; i < lanes; ++i) value[i] = reads(of_channel, i);
    }
    if constexpr (lanes == 1) {
      weight[0] = widened(*weights);
    } else {
      std::uint32_t pairs[lanes / 2];
      load_constant(pairs, weights);
      widen<T>(weight, pairs);
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) sum[i] = fmaf(value[i], weight[i], sum[i]);
  });
  const EpilogueStore<T> finish(call);
  finish(sum, static_cast<std::int64_t>(place.image) * call.p * call.q * call.y_pixel +
                  (place.p * call.q + place.q) * call.y_pixel + place.channel);
}

template <typename T, std::size_t at>
constexpr DepthwiseFunction kernel_of() {
  constexpr DepthwiseVariant v = half_depthwise_variants[at];
  if constexpr (v.shared)
    return nullptr;  // depthwise_shared.cu
  else if constexpr (v.ahead > 0)
    return depthwise_rows<T, v.size, v.stride, v.tile_p, v.tile_q, v.ahead>;
  else if constexpr (v.size > 0)
    return depthwise_strip<T, v.stride, v.tile_q, v.lanes / 2>;
  else
    return depthwise_any<T, v.lanes, v.channels>;
}
template <typename T, std::size_t... at>
constexpr auto kernels_of(std::index_sequence<at...>) {
  return std::array<DepthwiseFunction, sizeof...(at)>{kernel_of<T, at>()...};
}
template <typename T>
constexpr auto kernels = kernels_of<T>(std::make_index_sequence<half_depthwise_variants.size()>());

}  // namespace

DepthwiseFunction half_depthwise_kernel(DType storage, std::size_t variant) {
  return storage == DType::bf16 ? kernels<BFloat16>[variant] : kernels<Float16>[variant];
}

}  // namespace lenslet::cuda
