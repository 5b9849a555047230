#pragma once
// Tiles of x in NHWC to spectra and back (fft_plan.h). Lanes run over the channels of a tile, then of the next, as rows
// of V do: accesses to memory coalesce and shared memory has no bank conflicts. A thread transforms one channel of a
// row as real numbers, then, through shared memory, of a column.

#include <cuda_runtime.h>

#include <utility>

#include "base/cuda/launch.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/fft_plan.h"
#include "ops/conv/cuda/predicated_access.cuh"
#include "ops/core/activation.cuh"
#include "ops/core/fused_clamp.h"

namespace lenslet::cuda {

#define FFT_INLINE __device__ inline
#include "ops/conv/cuda/fft_transform-inl.h"
#undef FFT_INLINE

/// Position of tiles in images.
struct FftTiling {
  int first = 0, count = 0;  ///< of the chunk
  int down, across;          ///< tiles of an image
  int rows_out, columns_out;
};

/// Tiles of x [n][height][width][c] to v [slots][count][2][v_row].
struct FftInput : DeviceProblem<> {
  using DeviceProblem::DeviceProblem;
  int v_row;  ///< >= C, padded with zeros
  const float* x;
  float* v;
  FftTiling tiling;
};

/// Products [slots][count][2][product_row] to tiles of y.
struct FftOutput {
  const float* product;
  const float* bias;      ///< [k] or null
  const float* residual;  ///< like y or null; may be y
  float* y;               ///< [n][p][q][k], from one pixel to the next
  int y_pixel;            ///< floats from pixel to pixel: k, or more without a residual
  int p, q, k;
  int product_row;  ///< >= k
  FftTiling tiling;
  FusedClamp clamp;
  DeviceActivation activation;  ///< applied where clamp.after

  explicit FftOutput(const ConvProblem& problem)
      : p(static_cast<int>(problem.p)),
        q(static_cast<int>(problem.q)),
        k(static_cast<int>(problem.k)),
        clamp(problem.activation),
        activation(problem.activation) {}
};

/// A thread's tile and channel.
template <typename Block>
struct FftPlace {
  int line, lane;
  int tile;                ///< of the chunk; count or more: nothing to do
  int channel;             ///< below `channels`
  int image, row, column;  ///< of the tile's first output

  __device__ FftPlace(int channels, const FftTiling& g) {
    line = static_cast<int>(threadIdx.x) / Block::lanes;
    lane = static_cast<int>(threadIdx.x) % Block::lanes;
    const unsigned flat = blockIdx.x * Block::lanes + static_cast<unsigned>(lane);
    tile = static_cast<int>(flat / static_cast<unsigned>(channels));
    channel = static_cast<int>(flat % static_cast<unsigned>(channels));
    const unsigned whole = static_cast<unsigned>(g.first + tile);
    const unsigned line_of_tiles = whole / static_cast<unsigned>(g.across);
    column = static_cast<int>(whole % static_cast<unsigned>(g.across)) * g.columns_out;
    row = static_cast<int>(line_of_tiles % static_cast<unsigned>(g.down)) * g.rows_out;
    image = static_cast<int>(line_of_tiles / static_cast<unsigned>(g.down));
  }
};

/// Grid: blocks of Block::lanes over count * v_row.
template <typename Block>
__global__ void __launch_bounds__(Block::threads, Block::resident) fft_input_kernel(const FftInput g) {
  wait_for_previous();
  constexpr int size = Block::size, half = Block::half;
  extern __shared__ float spectra[];
  const FftPlace<Block> place(g.v_row, g.tiling);
  const bool exists = place.tile < g.tiling.count && place.channel < g.c;
  const int top = place.row - g.pad_top, left = place.column - g.pad_left;
  const int line = g.width * g.c;
  const float* const image = g.x + static_cast<long long>(place.image) * g.height * line + place.channel;
  // Both rows are loaded before either is transformed.
  float re[2][half], im[2][half];
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    const int h = top + place.line + turn * half;
    const bool row_exists = exists && static_cast<unsigned>(h) < static_cast<unsigned>(g.height);
    const float* const from = image + static_cast<long long>(h) * line + left * g.c;
#pragma unroll
    for (int j = 0; j < size; ++j) {
      float x[1];
      load(from + j * g.c, row_exists && static_cast<unsigned>(left + j) < static_cast<unsigned>(g.width), x);
      (j % 2 == 0 ? re : im)[turn][j / 2] = x[0];
    }
  }
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    fft_of_reals<size>(re[turn], im[turn]);
    float* const to = spectra + (place.line + turn * half) * Block::row + place.lane;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      to[j * Block::lanes] = re[turn][j];
      to[Block::part + j * Block::lanes] = im[turn][j];
    }
  }
  let_next_start();
  __syncthreads();
  float column_re[size], column_im[size];
  const float* const from = spectra + threadIdx.x;
#pragma unroll
  for (int i = 0; i < size; ++i) {
    column_re[i] = from[i * Block::row];
    column_im[i] = from[i * Block::row + Block::part];
  }
  fft<size>(column_re, column_im);
  if (place.line == 0) fft_separate<size>(column_re, column_im);
  if (place.tile >= g.tiling.count) return;
  const int matrix = g.tiling.count * 2 * g.v_row;
  float* v = g.v + (static_cast<long long>(place.line) * size * matrix + place.tile * 2 * g.v_row + place.channel);
#pragma unroll
  for (int i = 0; i < size; ++i, v += matrix) {
    v[0] = column_re[i];
    v[g.v_row] = column_im[i];
  }
}

/// Grid: blocks of Block::lanes over count * k.
template <typename Block>
__global__ void __launch_bounds__(Block::threads, Block::resident) fft_output_kernel(const FftOutput g) {
  wait_for_previous();
  constexpr int size = Block::size, half = Block::half;
  extern __shared__ float spectra[];
  const FftPlace<Block> place(g.k, g.tiling);
  const bool exists = place.tile < g.tiling.count;
  {
    const int matrix = g.tiling.count * 2 * g.product_row;
    const float* from = g.product + (static_cast<long long>(place.line) * size * matrix +
                                     place.tile * 2 * g.product_row + place.channel);
    float re[size], im[size];
#pragma unroll
    for (int i = 0; i < size; ++i, from += matrix) {
      float x[1];
      load(from, exists, x);
      re[i] = x[0];
      load(from + g.product_row, exists, x);
      im[i] = x[0];
    }
    if (place.line == 0) fft_join<size>(re, im);
    fft<size>(im, re);
    float* const to = spectra + threadIdx.x;
#pragma unroll
    for (int i = 0; i < size; ++i) {
      if (i >= g.tiling.rows_out) break;
      to[i * Block::row] = re[i];
      to[i * Block::row + Block::part] = im[i];
    }
  }
  __syncthreads();
  if (!exists) return;
  const float bias = g.bias == nullptr ? 0 : g.bias[place.channel];
  const int columns = min(g.tiling.columns_out, g.q - place.column);
#pragma unroll 1
  for (int row = place.line; row < g.tiling.rows_out; row += half) {
    const int p = place.row + row;
    if (p >= g.p) break;
    float re[half], im[half];
    float* const from = spectra + row * Block::row + place.lane;
#pragma unroll
    for (int j = 0; j < half; ++j) {
      re[j] = from[j * Block::lanes];
      im[j] = from[Block::part + j * Block::lanes];
    }
    fft_to_reals<size>(re, im);
    const long long first =
        ((static_cast<long long>(place.image) * g.p + p) * g.q + place.column) * g.y_pixel + place.channel;
    float* const y = g.y + first;
    if (!g.clamp.after) {
      float addend[size];
#pragma unroll
      for (int j = 0; j < size; ++j) {
        float x[1];
        load(g.residual + first + j * g.y_pixel, g.residual != nullptr && j < columns, x);
        addend[j] = x[0];
      }
#pragma unroll
      for (int j = 0; j < size; ++j) {
        const float sum = (j % 2 == 0 ? re : im)[j / 2] + bias + addend[j];
        if (j < columns) y[j * g.y_pixel] = clip(sum, g.clamp.low, g.clamp.high);
      }
      continue;
    }
    // Other activations are long code: one loop over shared memory, not unrolled.
#pragma unroll
    for (int j = 0; j < half; ++j) {
      from[2 * j * Block::lanes] = re[j];
      from[(2 * j + 1) * Block::lanes] = im[j];
    }
#pragma unroll 1
    for (int j = 0; j < columns; ++j) {
      const float addend = g.residual == nullptr ? 0 : g.residual[first + j * g.y_pixel];
      y[j * g.y_pixel] = g.activation(from[j * Block::lanes] + bias + addend);
    }
  }
}

}  // namespace lenslet::cuda
