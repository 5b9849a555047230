#pragma once
// Data transforms of Winograd F(m x m, r x r) in NHWC. A thread transforms one tile of V adjacent channels; lanes run
// over channels, so that accesses coalesce for any tile position.

#include <cuda_runtime.h>

#include "base/cuda/launch.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/predicated_access.cuh"
#include "ops/conv/winograd_matrices.h"
#include "ops/core/activation.cuh"
#include "ops/core/fused_clamp.h"

namespace lenslet::cuda {

inline constexpr int winograd_threads = 128;

/// Tiles [first, first + count) of x [n][height][width][c] to v [alpha^2][count][v_row].
struct WinogradInput : DeviceProblem<> {
  using DeviceProblem::DeviceProblem;
  int v_row;  ///< >= C, padded with zeros
  const float* x;
  float* v;
  int first, count;
  int down, across;  ///< tiles of an image
};

/// Products [alpha^2][count][product_row] to tiles [first, first + count) of y. Carries only the needed sizes: nvcc 13
/// compiles arguments of more than 128 bytes to longer code here.
struct WinogradOutput {
  const float* product;
  const float* bias;      ///< [k] or null
  const float* residual;  ///< like y or null; may be y
  float* y;               ///< [n][p][q][k], from one pixel to the next
  int y_pixel;            ///< floats from pixel to pixel: k, or more without a residual
  int first, count;
  int down, across;
  int p, q, k;
  int product_row;  ///< >= k
  FusedClamp clamp;
  DeviceActivation activation;  ///< applied where clamp.after

  explicit WinogradOutput(const ConvProblem& problem)
      : p(static_cast<int>(problem.p)),
        q(static_cast<int>(problem.q)),
        k(static_cast<int>(problem.k)),
        clamp(problem.activation),
        activation(problem.activation) {}
};

struct FloatMath {
  __device__ float add(float a, float b) const { return a + b; }
  __device__ float sub(float a, float b) const { return a - b; }
  __device__ float times(float coefficient, float x) const { return coefficient * x; }
  __device__ float plus(float coefficient, float x, float sum) const { return fmaf(coefficient, x, sum); }
};

#define WINOGRAD_INLINE __device__ inline
#include "ops/conv/winograd_transform-inl.h"
#undef WINOGRAD_INLINE

/// A thread's tile and channels.
template <int V>
struct TilePlace {
  int tile;                ///< of the chunk; count or more: nothing to do
  int channel;             ///< first of V
  int image, row, column;  ///< the tile's, in tiles

  __device__ TilePlace(int channels, int first, int down, int across) {
    const unsigned groups = static_cast<unsigned>(channels) / V;
    const unsigned thread = blockIdx.x * winograd_threads + threadIdx.x;
    tile = static_cast<int>(thread / groups);
    channel = static_cast<int>(thread % groups) * V;
    const unsigned whole = static_cast<unsigned>(first + tile), line = whole / static_cast<unsigned>(across);
    column = static_cast<int>(whole % static_cast<unsigned>(across));
    row = static_cast<int>(line % static_cast<unsigned>(down));
    image = static_cast<int>(line / static_cast<unsigned>(down));
  }
};

/// Grid: blocks of winograd_threads over count * v_row / V. c and v_row are multiples of V.
template <int M, int V, int R = 3>
__global__ void __launch_bounds__(winograd_threads) winograd_input_kernel(const WinogradInput g) {
  wait_for_previous();
  constexpr int alpha = winograd_alpha<M, R>;
  const TilePlace<V> place(g.v_row, g.first, g.down, g.across);
  if (place.tile >= g.count) return;
  const int top = place.row * M - g.pad_top, left = place.column * M - g.pad_left;
  const bool exists = place.channel < g.c;
  const int line = g.width * g.c;
  const float* const image = g.x + static_cast<long long>(place.image) * g.height * line + place.channel;

  float half[V][alpha][alpha];  // B^T d
#pragma unroll
  for (int j = 0; j < alpha; ++j) {
    const int w = left + j;
    const bool column_exists = exists && static_cast<unsigned>(w) < static_cast<unsigned>(g.width);
    float d[alpha][V];
#pragma unroll
    for (int i = 0; i < alpha; ++i) {
      const int h = top + i;
      load(image + static_cast<long long>(h) * line + w * g.c,
           column_exists && static_cast<unsigned>(h) < static_cast<unsigned>(g.height), d[i]);
    }
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float x[alpha], y[alpha];
#pragma unroll
      for (int i = 0; i < alpha; ++i) x[i] = d[i][e];
      input_transform<M, R>(FloatMath(), x, y);
#pragma unroll
      for (int i = 0; i < alpha; ++i) half[e][i][j] = y[i];
    }
  }
  float* v = g.v + place.tile * g.v_row + place.channel;
  const int matrix = g.count * g.v_row;
#pragma unroll
  for (int i = 0; i < alpha; ++i) {
    float y[V][alpha];
#pragma unroll
    for (int e = 0; e < V; ++e) input_transform<M, R>(FloatMath(), half[e][i], y[e]);
#pragma unroll
    for (int j = 0; j < alpha; ++j, v += matrix) {
      float out[V];
#pragma unroll
      for (int e = 0; e < V; ++e) out[e] = y[e][j];
      store(v, out);
    }
  }
}

/// Grid: blocks of winograd_threads over count * k / V. k and product_row are multiples of V.
template <int M, int V, int R = 3>
__global__ void __launch_bounds__(winograd_threads) winograd_output_kernel(const WinogradOutput g) {
  wait_for_previous();
  constexpr int alpha = winograd_alpha<M, R>;
  const TilePlace<V> place(g.k, g.first, g.down, g.across);
  if (place.tile >= g.count) return;
  const int k = place.channel;
  const int row = place.row * M, column = place.column * M;
  const long long first = (static_cast<long long>(place.image) * g.p + row) * g.q * g.y_pixel + column * g.y_pixel + k;
  const int line = g.q * g.y_pixel;

  // Loaded first: a residual from memory takes longest.
  float addend[M][M][V] = {};
  if (g.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int j = 0; j < M; ++j)
        load(g.residual + first + static_cast<long long>(i) * line + j * g.y_pixel, row + i < g.p && column + j < g.q,
             addend[i][j]);
  }
  float bias[V];
  load(g.bias + k, g.bias != nullptr, bias);

  const float* const product = g.product + place.tile * g.product_row + k;
  const int matrix = g.count * g.product_row;
  float half[V][M][alpha];  // A^T M
#pragma unroll
  for (int j = 0; j < alpha; ++j) {
    float d[alpha][V];
#pragma unroll
    for (int i = 0; i < alpha; ++i) load(product + (i * alpha + j) * matrix, true, d[i]);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      float x[alpha], y[M];
#pragma unroll
      for (int i = 0; i < alpha; ++i) x[i] = d[i][e];
      output_transform<M, R>(FloatMath(), x, y);
#pragma unroll
      for (int i = 0; i < M; ++i) half[e][i][j] = y[i];
    }
  }

#pragma unroll
  for (int i = 0; i < M; ++i) {
    float acc[V][M];
#pragma unroll
    for (int e = 0; e < V; ++e) output_transform<M, R>(FloatMath(), half[e][i], acc[e]);
#pragma unroll
    for (int j = 0; j < M; ++j) {
      float out[V];
#pragma unroll
      for (int e = 0; e < V; ++e) out[e] = clip(acc[e][j] + bias[e] + addend[i][j][e], g.clamp.low, g.clamp.high);
      if (g.clamp.after) {
#pragma unroll
        for (int e = 0; e < V; ++e) out[e] = g.activation(out[e]);
      }
      if (row + i < g.p && column + j < g.q) store(g.y + first + static_cast<long long>(i) * line + j * g.y_pixel, out);
    }
  }
}

}  // namespace lenslet::cuda
