#pragma once
// The data transforms of Winograd F(m x m, 3 x 3) in NHWC. A thread transforms one tile of V neighbouring channels;
// lanes run over channels, so that a warp reads and writes whole lines wherever its tile lies.

#include <cuda_runtime.h>

#include "base/cuda/launch.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/winograd_matrices.h"
#include "ops/core/activation.cuh"
#include "ops/core/fused_clamp.h"

namespace lenslet::cuda {

inline constexpr int winograd_threads = 128;

/// Tiles [first, first + count) of x [n][height][width][c] to v [alpha^2][count][v_row].
struct WinogradInput : DeviceProblem<> {
  using DeviceProblem::DeviceProblem;
  int v_row;  ///< >= c: zeros behind
  const float* x;
  float* v;
  int first, count;
  int down, across;  ///< tiles of an image
};

/// Products [alpha^2][count][product_row] to tiles [first, first + count) of y. Not with all of the problem: nvcc 13
/// compiles arguments of more than 128 bytes into longer code here.
struct WinogradOutput {
  const float* product;
  const float* bias;      ///< [k] or null
  const float* residual;  ///< like y or null; may be y
  float* y;               ///< [n][p][q][k]
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

// Coefficients as scalars: elements of a constexpr array cannot be named in device code.
template <int M, int Row, int J>
inline constexpr float winograd_bt = static_cast<float>(winograd_matrices<M>.bt[Row][J]);
template <int M, int Row, int J>
inline constexpr float winograd_at = static_cast<float>(winograd_matrices<M>.at[Row][J]);

template <int M>
inline constexpr int winograd_alpha = M + 2;

template <int M, int Row, int J>
__host__ __device__ constexpr bool any_bt_left() {
  if constexpr (J >= winograd_alpha<M>)
    return false;
  else
    return winograd_bt<M, Row, J> != 0 || any_bt_left<M, Row, J + 2>();
}

/// The sum of bt[Row][j] * x[j] over j = J, J + 2, .. : one half of a row of B^T.
template <int M, int Row, int J>
__device__ inline float half_row(const float (&x)[winograd_alpha<M>]) {
  static_assert(any_bt_left<M, Row, J>());
  constexpr float coefficient = winograd_bt<M, Row, J>;
  if constexpr (!any_bt_left<M, Row, J + 2>())
    return coefficient * x[J];
  else if constexpr (coefficient == 0)
    return half_row<M, Row, J + 2>(x);
  else
    return fmaf(coefficient, x[J], half_row<M, Row, J + 2>(x));
}

/// The rows of points +p and -p: the even half plus and minus the odd half.
template <int M, int Pair = 0>
__device__ inline void input_pairs(const float (&x)[winograd_alpha<M>], float (&y)[winograd_alpha<M>]) {
  if constexpr (Pair < M / 2) {
    constexpr int row = 1 + 2 * Pair;
    const float even = half_row<M, row, 0>(x), odd = half_row<M, row, 1>(x);
    y[row] = even + odd;
    y[row + 1] = even - odd;
    input_pairs<M, Pair + 1>(x, y);
  }
}

/// y = B^T x.
template <int M>
__device__ inline void input_transform(const float (&x)[winograd_alpha<M>], float (&y)[winograd_alpha<M>]) {
  y[0] = half_row<M, 0, 0>(x);
  input_pairs<M>(x, y);
  y[M + 1] = half_row<M, M + 1, 1>(x);
}

/// The sum of at[Row][1 + 2 * pair] * half[pair] from `Pair` on.
template <int M, int Row, int Pair = 0>
__device__ inline float power_sum(const float (&half)[M / 2]) {
  constexpr float coefficient = winograd_at<M, Row, 1 + 2 * Pair>;
  if constexpr (Pair + 1 == M / 2)
    return coefficient * half[Pair];
  else
    return fmaf(coefficient, half[Pair], power_sum<M, Row, Pair + 1>(half));
}

template <int M, int Row = 0>
__device__ inline void output_rows(const float (&even)[M / 2], const float (&odd)[M / 2], float (&y)[M]) {
  if constexpr (Row < M) {
    y[Row] = power_sum<M, Row>(Row % 2 == 0 ? even : odd);
    output_rows<M, Row + 1>(even, odd, y);
  }
}

/// y = A^T x. Column 0 belongs to the point 0, the last to infinity: they enter one output each.
template <int M>
__device__ inline void output_transform(const float (&x)[winograd_alpha<M>], float (&y)[M]) {
  float even[M / 2], odd[M / 2];
#pragma unroll
  for (int pair = 0; pair < M / 2; ++pair) {
    even[pair] = x[1 + 2 * pair] + x[2 + 2 * pair];
    odd[pair] = x[1 + 2 * pair] - x[2 + 2 * pair];
  }
  output_rows<M>(even, odd, y);
  y[0] += x[0];
  y[M - 1] += x[M + 1];
}

// V neighbouring floats, aligned to their size, in one instruction, which nvcc 13 does not make of float2 and float4
// here (it stores them one by one). Loads give zeros unless `exists`; they are predicated by hand, because an `if` may
// become a branch around each, and then they wait for each other.
__device__ inline void load(const float* from, bool exists, float (&to)[1]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %2, 0; mov.f32 %0, 0f00000000;\n"
      "@p ld.global.f32 %0, [%1];}"
      : "=&f"(to[0])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void load(const float* from, bool exists, float (&to)[2]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %3, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000;\n"
      "@p ld.global.v2.f32 {%0, %1}, [%2];}"
      : "=&f"(to[0]), "=&f"(to[1])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void load(const float* from, bool exists, float (&to)[4]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %5, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000;\n"
      "mov.f32 %2, 0f00000000; mov.f32 %3, 0f00000000;\n"
      "@p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
      : "=&f"(to[0]), "=&f"(to[1]), "=&f"(to[2]), "=&f"(to[3])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void store(float* to, const float (&from)[1]) { *to = from[0]; }
__device__ inline void store(float* to, const float (&from)[2]) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(from[0]), "f"(from[1]) : "memory");
}
__device__ inline void store(float* to, const float (&from)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]),
               "f"(from[3])
               : "memory");
}

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
template <int M, int V>
__global__ void __launch_bounds__(winograd_threads) winograd_input_kernel(const WinogradInput g) {
  wait_for_previous();
  constexpr int alpha = winograd_alpha<M>;
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
      input_transform<M>(x, y);
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
    for (int e = 0; e < V; ++e) input_transform<M>(half[e][i], y[e]);
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
template <int M, int V>
__global__ void __launch_bounds__(winograd_threads) winograd_output_kernel(const WinogradOutput g) {
  wait_for_previous();
  constexpr int alpha = winograd_alpha<M>;
  const TilePlace<V> place(g.k, g.first, g.down, g.across);
  if (place.tile >= g.count) return;
  const int k = place.channel;
  const int row = place.row * M, column = place.column * M;
  const long long first = (static_cast<long long>(place.image) * g.p + row) * g.q * g.k + column * g.k + k;
  const int line = g.q * g.k;

  // Asked for first: a residual that comes from memory takes longest.
  float addend[M][M][V] = {};
  if (g.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int j = 0; j < M; ++j)
        load(g.residual + first + static_cast<long long>(i) * line + j * g.k, row + i < g.p && column + j < g.q,
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
      output_transform<M>(x, y);
#pragma unroll
      for (int i = 0; i < M; ++i) half[e][i][j] = y[i];
    }
  }

#pragma unroll
  for (int i = 0; i < M; ++i) {
    float sums[V][M];
#pragma unroll
    for (int e = 0; e < V; ++e) output_transform<M>(half[e][i], sums[e]);
#pragma unroll
    for (int j = 0; j < M; ++j) {
      float out[V];
#pragma unroll
      for (int e = 0; e < V; ++e) out[e] = clip(sums[e][j] + bias[e] + addend[i][j][e], g.clamp.low, g.clamp.high);
      if (g.clamp.after) {
#pragma unroll
        for (int e = 0; e < V; ++e) out[e] = g.activation(out[e]);
      }
      if (row + i < g.p && column + j < g.q) store(g.y + first + static_cast<long long>(i) * line + j * g.k, out);
    }
  }
}

}  // namespace lenslet::cuda
