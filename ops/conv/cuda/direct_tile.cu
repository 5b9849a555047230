// Direct convolution, NHWC, one spatial tile a block: input tile with halo and filters in shared memory, 4 neighbouring
// outputs of up to 8 filters in a thread's registers. For few input channels and filters up to 11x11.
//
// A warp computes 4 rows of 32 columns of one group of filters, so that all its lanes read the same weight. In shared
// memory a row of one input channel is split into phases by column modulo stride_w: neighbouring outputs read
// neighbouring floats at any stride. ladder/ shows what each step gains.

#include "ops/conv/cuda/direct_tile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/fast_divider.h"
#include "ops/conv/cuda/direct_mappings.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {
namespace {

using namespace direct_tile_sizes;

constexpr int thread_columns = 4;

/// w in group_filters()' format.
struct TileCall : ConvCall<> {
  using ConvCall::ConvCall;
  int warps_p, warps_k;    ///< of a block: along output rows, and over groups of filters
  int chunk;               ///< input channels in shared memory at once
  int rows, columns;       ///< input tile
  int phase_pitch, pitch;  ///< floats of a phase and of a row
  int x_floats, w_floats;  ///< of a chunk
  int output_pitch;        ///< floats from pixel to pixel of the accumulators staged for the epilogue
  int tap[max_kernel];     ///< offset in a row of filter column s, from the output's column
  FastDivider tiles_q, tiles_p, quads_a_tap, vectors_a_pixel;
  int groups;    ///< of filters, in all
  bool vectors;  ///< y and residual can be accessed by vectors
};

/// Loads the input tile at (top, left), channels [first, first + channels): to[channel][row][phase][column], zeros in
/// the pads. A thread keeps its column, so that it decodes positions once for all rows.
__device__ void stage_input(const TileCall& call, const float* image, float* to, int first, int channels, int top,
                            int left) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int floats = call.columns * channels;  // a tile row, contiguous in memory when all channels are in it
  const int slots = min(threads, floats), rows_at_once = threads / slots;
  const int first_row = thread / slots;
  if (first_row >= rows_at_once) return;
  const int line = call.width * call.c;
  for (int i = thread % slots; i < floats; i += slots) {
    const int column = i / channels, c = i % channels, w = left + column;
    const bool column_inside = w >= 0 && w < call.width;
    const float* from = image + w * call.c + first + c;
    float* at = to + c * call.rows * call.pitch + column % call.stride_w * call.phase_pitch + column / call.stride_w;
    for (int row = first_row; row < call.rows; row += rows_at_once) {
      const int h = top + row;
      const bool inside = column_inside && h >= 0 && h < call.height;
      copy_async<1>(at + row * call.pitch, inside ? from + h * line : image, inside);
    }
  }
}

/// Loads the weights of channels [first, first + channels) of the block's groups: to[channel][r][s][warps_k][8].
__device__ void stage_filters(const TileCall& call, float* to, int first, int channels, int first_group) {
  const int taps = call.r * call.s;
  const int quads = channels * taps * call.warps_k * (group_floats / 4);
  for (int i = static_cast<int>(threadIdx.x); i < quads; i += static_cast<int>(blockDim.x)) {
    int tap = i;
    const int quad = call.quads_a_tap.split(tap);
    const bool inside = first_group + quad / 2 < call.groups;
    const int from = ((first * taps + tap) * call.groups + first_group) * group_floats + quad * 4;
    copy_async<4, true>(to + i * 4, call.w + (inside ? from : 0), inside);
  }
}

template <int filters>
__device__ void load_weights(float (&w)[filters], const float* from) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
  if constexpr (filters == 8) {
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
  } else {
    const float2 high = *reinterpret_cast<const float2*>(from + 4);
    w[4] = high.x, w[5] = high.y;
  }
}

/// One filter row with known size and stride: the thread's outputs are columns 4*lane .. 4*lane+3, whose windows
/// overlap in registers. `x` is column 4*lane of phase 0, `w` the row's first weight.
template <int size, int stride, int filters>
__device__ void add_window(float (&acc)[thread_columns][filters], const TileCall& call, const float* x,
                           const float* w) {
  constexpr int quads = ((size + stride - 1) / stride + thread_columns - 1 + 3) / 4;  // of the longest phase
  alignas(16) float window[stride][4 * quads];  // in local memory where the compiler does not inline this
#pragma unroll
  for (int phase = 0; phase < stride; ++phase)
#pragma unroll
    for (int i = 0; i < quads; ++i)
      *reinterpret_cast<float4*>(&window[phase][4 * i]) =
          *reinterpret_cast<const float4*>(x + phase * call.phase_pitch + 4 * i);
#pragma unroll
  for (int s = 0; s < size; ++s) {
    float weights[filters];
    load_weights(weights, w + s * call.warps_k * group_floats);
#pragma unroll
    for (int j = 0; j < thread_columns; ++j)
#pragma unroll
      for (int k = 0; k < filters; ++k) acc[j][k] = fmaf(window[s % stride][s / stride + j], weights[k], acc[j][k]);
  }
}

/// Any size, stride and dilation: the outputs are columns lane, lane+8, lane+16, lane+24, free of bank conflicts.
template <int filters>
__device__ void add_taps(float (&acc)[thread_columns][filters], const TileCall& call, const float* x, const float* w) {
#pragma unroll 2
  for (int s = 0; s < call.s; ++s) {
    float weights[filters];
    load_weights(weights, w + s * call.warps_k * group_floats);
#pragma unroll
    for (int j = 0; j < thread_columns; ++j) {
      const float value = x[call.tap[s] + 8 * j];
#pragma unroll
      for (int k = 0; k < filters; ++k) acc[j][k] = fmaf(value, weights[k], acc[j][k]);
    }
  }
}

template <int vector>
struct alignas(vector * sizeof(float)) Vector {
  float values[vector];
};

/// Epilogue of neighbouring filters of one output: bias, residual, activation; `at` is an offset in y's image.
template <int vector>
__device__ void finish(const TileCall& call, Vector<vector> acc, int image, int at, int k) {
  const std::int64_t offset = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel + at;
  const int count = min(vector, call.k - k);
  Vector<vector> residual{};
  if (call.residual != nullptr) {
    if (call.vectors) {
      residual = *reinterpret_cast<const Vector<vector>*>(call.residual + offset);
    } else {
#pragma unroll
      for (int i = 0; i < vector; ++i)
        if (i < count) residual.values[i] = call.residual[offset + i];
    }
  }
#pragma unroll
  for (int i = 0; i < vector; ++i) {
    if (call.bias != nullptr && i < count) acc.values[i] += call.bias[k + i];
    acc.values[i] = call.activation(acc.values[i] + residual.values[i]);
  }
  if (call.vectors) {
    *reinterpret_cast<Vector<vector>*>(call.y + offset) = acc;
    return;
  }
#pragma unroll
  for (int i = 0; i < vector; ++i)
    if (i < count) call.y[offset + i] = acc.values[i];
}

/// size 0: any, by add_taps.
template <int size, int stride, int filters>
__global__ void __launch_bounds__(max_threads, 2) direct_tile(const __grid_constant__ TileCall call) {
  wait_for_previous();
  extern __shared__ float4 shared_quads[];
  auto* shared = reinterpret_cast<float*>(shared_quads);

  int image = static_cast<int>(blockIdx.x);
  const int first_q = call.tiles_q.split(image) * warp_columns;
  const int first_p = call.tiles_p.split(image) * warp_rows * call.warps_p;
  const int first_group = static_cast<int>(blockIdx.y) * call.warps_k;
  const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
  const float* x = call.x + static_cast<std::int64_t>(image) * call.height * call.width * call.c;

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp % call.warps_p * warp_rows + lane / 8, lane_q = lane % 8, group = warp / call.warps_p;

  const int stage_floats = call.x_floats + call.w_floats;
  const auto stage = [&](int first, int index) {
    float* to = shared + index * stage_floats;
    const int channels = min(call.chunk, call.c - first);
    stage_input(call, x, to, first, channels, top, left);
    stage_filters(call, to + call.x_floats, first, channels, first_group);
    commit_copies();
  };

  float acc[thread_columns][filters] = {};
  stage(0, 0);
  int current = 0;
  for (int first = 0; first < call.c; first += call.chunk, current ^= 1) {
    if (first + call.chunk < call.c) {
      stage(first + call.chunk, current ^ 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const int channels = min(call.chunk, call.c - first);
    const float* tile = shared + current * stage_floats + row * call.stride_h * call.pitch +
                        (size == 0 ? lane_q : thread_columns * lane_q);
    const float* w = shared + current * stage_floats + call.x_floats + group * group_floats;
    for (int c = 0; c < channels; ++c, tile += call.rows * call.pitch)
#pragma unroll 1
      for (int r = 0; r < call.r; ++r, w += call.s * call.warps_k * group_floats) {
        const float* line = tile + r * call.dilation_h * call.pitch;
        if constexpr (size == 0)
          add_taps(acc, call, line, w);
        else
          add_window<size, stride>(acc, call, line, w);
      }
    __syncthreads();  // shared memory is overwritten next, by copies or accumulators
  }

  // Accumulators are staged in shared memory, so that neighbouring threads store neighbouring filters. Pixel 8*j +
  // lane_q of a row with an odd number of vectors a pixel has no bank conflicts.
  constexpr int vector = filters == 8 ? 4 : 2;
#pragma unroll
  for (int j = 0; j < thread_columns; ++j) {
    float* to = shared + (row * warp_columns + 8 * j + lane_q) * call.output_pitch + group * filters;
#pragma unroll
    for (int k = 0; k < filters; k += vector) {
      Vector<vector> some;
#pragma unroll
      for (int i = 0; i < vector; ++i) some.values[i] = acc[j][k + i];
      *reinterpret_cast<Vector<vector>*>(to + k) = some;
    }
  }
  __syncthreads();
  const int vectors = call.warps_p * warp_rows * warp_columns * call.warps_k * (filters / vector);
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += static_cast<int>(blockDim.x)) {
    int pixel = i;
    const int k_in_block = call.vectors_a_pixel.split(pixel) * vector, k = first_group * filters + k_in_block;
    const int column = pixel % warp_columns, line = pixel / warp_columns;
    const int p = first_p + line, q = first_q + column;
    if (p >= call.p || q >= call.q || k >= call.k) continue;
    const int place = size == 0 ? column : column % thread_columns * 8 + column / thread_columns;
    const float* from = shared + (line * warp_columns + place) * call.output_pitch + k_in_block;
    finish(call, *reinterpret_cast<const Vector<vector>*>(from), image, (p * call.q + q) * call.y_pixel + k, k);
  }
}

struct Kernels {
  void (*six)(TileCall);  ///< filters a group
  void (*eight)(TileCall);
};
/// As direct_windows.
template <std::size_t... at>
constexpr auto kernels_of(std::index_sequence<at...>) {
  return std::array<Kernels, sizeof...(at)>{{{direct_tile<direct_windows[at].size, direct_windows[at].stride, 6>,
                                              direct_tile<direct_windows[at].size, direct_windows[at].stride, 8>}...}};
}
constexpr auto kernels = kernels_of(std::make_index_sequence<direct_windows.size()>());

}  // namespace

std::unique_ptr<const BoundKernel> bind_direct_tile(const ConvProblem& p, const Tiling& t) {
  const InputTile tile(p, t);
  const auto integer = [](std::int64_t value) { return static_cast<int>(value); };
  const std::int64_t vectors_a_pixel = t.warps_k * t.filters / t.vector();
  TileCall call(p);
  call.groups = integer(group_count(p.k, t.filters));
  call.warps_p = integer(t.warps_p);
  call.warps_k = integer(t.warps_k);
  call.chunk = integer(t.chunk);
  call.rows = integer(tile.rows);
  call.columns = integer(tile.columns);
  call.phase_pitch = integer(tile.phase_pitch);
  call.pitch = integer(tile.pitch);
  call.x_floats = integer(round_up(t.chunk * tile.rows * tile.pitch, 4));
  call.w_floats = integer(t.chunk * p.r * p.s * t.warps_k * group_floats);
  call.output_pitch = integer(t.vector() * (vectors_a_pixel | 1));
  for (std::int64_t s = 0; s < p.s; ++s) {
    const std::int64_t column = s * p.dilation_w;
    call.tap[s] = integer(column % p.stride_w * tile.phase_pitch + column / p.stride_w);
  }
  call.tiles_q = FastDivider(group_count(p.q, warp_columns));
  call.tiles_p = FastDivider(group_count(p.p, t.warps_p * warp_rows));
  call.quads_a_tap = FastDivider(t.warps_k * (group_floats / 4));
  call.vectors_a_pixel = FastDivider(vectors_a_pixel);
  call.vectors = p.k % t.vector() == 0;

  const std::int64_t stages = t.chunk < p.c ? 2 : 1;
  const std::int64_t output_floats = t.warps_p * warp_rows * warp_columns * call.output_pitch;
  const std::int64_t floats = std::max(stages * (call.x_floats + call.w_floats), output_floats);
  const Kernels& window = kernels[window_for(p)];
  return std::make_unique<OneLaunch<TileCall>>(
      p, call, t.filters == 8 ? window.eight : window.six,
      dim3(static_cast<unsigned>(t.tiles(p)), static_cast<unsigned>(t.blocks_k(p))),
      static_cast<unsigned>(32 * t.warps_p * t.warps_k), static_cast<std::size_t>(floats) * sizeof(float));
}

}  // namespace lenslet::cuda
