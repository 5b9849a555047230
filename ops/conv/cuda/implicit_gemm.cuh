#pragma once
// The implicit_gemm kernel. The im2col matrix A is never stored: each block gathers its tile of A, [pixels][gemm_k],
// from the input while it multiplies.
//
// K is ordered r, s, c, channels innermost. A thread gathers the same column of every k-block, so that it steps through
// channels and taps by additions; pixel coordinates are decoded once per block.

#include <climits>

#include "base/cuda/cluster.cuh"
#include "ops/conv/cuda/gemm_tile.cuh"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {

/// Kernel arguments. Sizes in elements; w [groups][gemm_k][filter_pitch].
struct ImplicitGemm : ConvCall<> {
  using ConvCall::ConvCall;
  float* partial = nullptr;  ///< split-K partial sums, [split_k][elements of y]; null: results go to y
  int gemm_k, steps_per_split, tiles_n;
  int cluster;  ///< 1, or all splits of a tile, which form a cluster and reduce in it
  int pixels;   ///< N*P*Q
  int pq;
  int group_c, group_k, filter_pitch;
  int window_h, window_w;      ///< R*dilation_h, S*dilation_w
  int x_c, x_h, x_w;           ///< strides of x: channel, line, column
  long long x_image;           ///< image stride of x
  long long elems;             ///< N*K*P*Q
  bool store_vectors;          ///< NHWC with output channels in aligned vectors of four
  bool await_filters = false;  ///< filters are written by an earlier kernel of this run
};

__device__ inline PixelOrigin pixel_origin(const ImplicitGemm& g, int pixel, int group) {
  if (pixel >= g.pixels) return {0, INT_MIN / 2, 0};  // every tap is outside
  const int image = pixel / g.pq, place = pixel % g.pq;
  const int h = place / g.q * g.stride_h - g.pad_top, w = place % g.q * g.stride_w - g.pad_left;
  const long long offset = image * g.x_image + static_cast<long long>(h) * g.x_h + static_cast<long long>(w) * g.x_w +
                           static_cast<long long>(group) * g.group_c * g.x_c;
  return {offset, h, w};
}

/// Loads A: the thread's column of each k-block, over the block's pixels.
template <typename Tile, GemmAccess access>
class InputLoader {
  static constexpr int vector = access == GemmAccess::nhwc_vectors ? 4 : 1;
  static constexpr int columns = gemm_step / vector;
  static constexpr int loads = Tile::m * columns / Tile::threads;
  static_assert(Tile::threads % columns == 0 && Tile::m * columns % Tile::threads == 0);
  static_assert(access != GemmAccess::nchw || Tile::threads % (8 * columns) == 0);

 public:
  __device__ InputLoader(const ImplicitGemm& g, int first_gemm_k) {
    const int thread = static_cast<int>(threadIdx.x);
    // NCHW: eight lanes take adjacent pixels (one sector); NHWC: lanes take adjacent channels.
    column_ = access == GemmAccess::nchw ? thread / 8 % columns : thread % columns;
    row_ = access == GemmAccess::nchw ? thread / (8 * columns) * 8 + thread % 8 : thread / columns;
    const int k_index = first_gemm_k + column_ * vector;
    channel_ = k_index % g.group_c;
    const int tap = k_index / g.group_c;
    tap_h_ = tap / g.s * g.dilation_h;
    tap_w_ = tap % g.s * g.dilation_w;
  }

  /// Starts the copies of the next k-block into `a`.
  __device__ void load(const ImplicitGemm& g, const PixelOrigin* origins, float* a) {
    const int tap_offset = tap_h_ * g.x_h + tap_w_ * g.x_w + channel_ * g.x_c;
    const bool tap_exists = tap_h_ < g.window_h;
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int row = row_ + i * (Tile::threads / columns);
      const PixelOrigin origin = origins[row];
      // No short circuit: one 16-byte read, and no branches that wait for its parts.
      const bool inside = tap_exists & (static_cast<unsigned>(origin.h + tap_h_) < static_cast<unsigned>(g.height)) &
                          (static_cast<unsigned>(origin.w + tap_w_) < static_cast<unsigned>(g.width));
      copy_async<vector>(a + row * Tile::a_pitch + column_ * vector, g.x + (inside ? origin.offset + tap_offset : 0),
                         inside);
    }
    channel_ += gemm_step;
    while (channel_ >= g.group_c) {
      channel_ -= g.group_c;
      tap_w_ += g.dilation_w;
      if (tap_w_ == g.window_w) {
        tap_w_ = 0;
        tap_h_ += g.dilation_h;
      }
    }
  }

 private:
  int column_, row_;
  int channel_, tap_h_, tap_w_;  ///< of this thread's column in the next k-block
};

/// Loads B: rows of the packed filters.
template <typename Tile>
class FilterLoader {
  static constexpr int row_vectors = Tile::n / 4;
  static constexpr int rows_a_pass = Tile::threads / row_vectors;
  static_assert(Tile::threads % row_vectors == 0 && gemm_step % rows_a_pass == 0);

 public:
  __device__ FilterLoader(const ImplicitGemm& g, int group, int first_k, int first_gemm_k) {
    const int thread = static_cast<int>(threadIdx.x);
    row_ = thread / row_vectors;
    column_ = thread % row_vectors * 4;
    rows_left_ = first_k + column_ < g.filter_pitch ? g.gemm_k - first_gemm_k - row_ : 0;
    const long long row = static_cast<long long>(group) * g.gemm_k + first_gemm_k + row_;
    from_ = rows_left_ > 0 ? g.w + row * g.filter_pitch + first_k + column_ : g.w;
  }

  __device__ void load(const ImplicitGemm& g, float* b) {
#pragma unroll
    for (int i = 0; i < gemm_step; i += rows_a_pass) {
      const bool inside = i < rows_left_;
      copy_async<4>(b + (row_ + i) * Tile::n + column_,
                    inside ? from_ + static_cast<long long>(i) * g.filter_pitch : g.w, inside);
    }
    rows_left_ -= gemm_step;
    from_ += static_cast<long long>(gemm_step) * g.filter_pitch;
  }

 private:
  int row_, column_;
  int rows_left_;      ///< filter rows from this thread's next one to the end
  const float* from_;  ///< the next row
};

/// Pitch of the accumulator tile in shared memory, for the epilogue's reads along filters (NHWC) or pixels (NCHW).
template <typename Tile, GemmAccess access>
inline constexpr int acc_pitch = Tile::n + (access == GemmAccess::nchw ? 1 : 4);

/// Four filters' accumulators of a pixel; in NCHW the pixel is not aligned to four.
template <GemmAccess access>
__device__ inline void read_four(float (&to)[4], const float* from) {
  if constexpr (access != GemmAccess::nchw)
    read_vector(to, from);
  else
    for (int e = 0; e < 4; ++e) to[e] = from[e];
}

/// value = the cluster's partial sums at `mine`, added in rank order.
template <GemmAccess access>
__device__ inline void sum_cluster(const float* mine, int cluster, float (&value)[4]) {
  float theirs[max_cluster][4];  // all loads in flight
#pragma unroll
  for (int rank = 0; rank < max_cluster; ++rank)
    if (rank < cluster) read_four<access>(theirs[rank], in_block(rank, mine));
  for (int e = 0; e < 4; ++e) value[e] = 0;
#pragma unroll
  for (int rank = 0; rank < max_cluster; ++rank)
    if (rank < cluster)
      for (int e = 0; e < 4; ++e) value[e] += theirs[rank][e];
}

/// Epilogue of the tile `sums`, [m][acc_pitch] in shared memory, four filters of a pixel at a time; or stores it as a
/// split-K partial sum. `bias`, in shared memory, is the tile's. In a cluster each block reduces and writes its part.
///
/// Lanes follow y's contiguous axis: NHWC threads keep their filters and walk pixels, NCHW threads keep their pixel and
/// walk filters. Both take fours, even for scalar stores: one activation each, and biases loaded between the batches,
/// took 9.0 us for 8x16x6x6 -> 14, 1x1.
template <typename Tile, GemmAccess access>
__device__ inline void store_tile(const ImplicitGemm& g, const float* acc, const float* bias, int first_pixel,
                                  int first_k, int group) {
  constexpr bool nchw = access == GemmAccess::nchw;
  constexpr int lines = nchw ? Tile::m : Tile::n / 4, walked = nchw ? Tile::n / 4 : Tile::m;
  constexpr int steps_a_pass = Tile::threads / lines;
  constexpr int batch = 4;  // so that reads of accumulators and residual overlap
  static_assert(Tile::threads % lines == 0);
  const bool whole = g.partial == nullptr, vectors = !nchw && g.store_vectors;
  const int thread = static_cast<int>(threadIdx.x), line = thread % lines;
  const int split = static_cast<int>(blockIdx.y), rank = g.cluster > 1 ? split : 0;
  const int filters = g.group_k - first_k, pixels = g.pixels - first_pixel;  // from the tile's origin
  const int own_row = nchw ? line : 0, own_col = nchw ? 0 : 4 * line;
  if (own_row >= pixels || own_col >= filters) return;
  const int steps = min(walked, nchw ? (filters + 3) / 4 : pixels), stride = g.cluster * steps_a_pass;

  float* const to = whole ? g.y : g.partial + split * g.elems;
  const int pitch = whole ? g.y_pixel : g.k, k_elems = nchw ? g.pq : 1;
  const int pixel = first_pixel + own_row, k = group * g.group_k + first_k + own_col;
  const long long own_at = nchw ? (static_cast<long long>(pixel / g.pq) * g.k + k) * g.pq + pixel % g.pq
                                : static_cast<long long>(pixel) * pitch + k;
  const long long step_elems = nchw ? 4LL * g.pq : pitch;
#pragma unroll 1
  for (int first = rank * steps_a_pass + thread / lines; first < steps; first += batch * stride) {
    float value[batch][4], residual[batch][4] = {};
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int step = first + i * stride;
      if (step >= steps) continue;
      const int row = own_row + (nchw ? 0 : step), col = own_col + (nchw ? 4 * step : 0);
      const float* const from = acc + row * acc_pitch<Tile, access> + col;
      if (g.cluster > 1)
        sum_cluster<access>(from, g.cluster, value[i]);
      else
        read_four<access>(value[i], from);
      if (!whole || g.residual == nullptr) continue;
      const float* const theirs = g.residual + own_at + step * step_elems;
      if (vectors)
        read_vector(residual[i], theirs);
      else
        for (int e = 0; e < 4; ++e)
          if (col + e < filters) residual[i][e] = theirs[e * k_elems];
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int step = first + i * stride;
      if (step >= steps) continue;
      const int col = own_col + (nchw ? 4 * step : 0);
      if (whole) {
        float biases[4];
        read_vector(biases, bias + col);
        if (g.bias != nullptr)
          for (int e = 0; e < 4; ++e) value[i][e] += biases[e];
        if (g.residual != nullptr)
          for (int e = 0; e < 4; ++e) value[i][e] += residual[i][e];
        const float4 v = g.activation(float4{value[i][0], value[i][1], value[i][2], value[i][3]});
        value[i][0] = v.x, value[i][1] = v.y, value[i][2] = v.z, value[i][3] = v.w;
      }
      float* const at = to + own_at + step * step_elems;
      if (vectors)
        *reinterpret_cast<float4*>(at) = {value[i][0], value[i][1], value[i][2], value[i][3]};
      else
        for (int e = 0; e < 4; ++e)
          if (col + e < filters) at[e * k_elems] = value[i][e];
    }
  }
}

/// Stores a thread's accumulators to shared memory in store_tile()'s layout.
template <typename Tile, GemmAccess access>
__device__ inline void lay_down(const ThreadPlace<Tile>& place, const float (&sum)[Tile::rows][Tile::cols],
                                float* acc) {
#pragma unroll
  for (int i = 0; i < Tile::rows; ++i)
#pragma unroll
    for (int j = 0; j < Tile::cols; j += 4) {
      float* const to = acc + (place.row + 8 * i) * acc_pitch<Tile, access> + place.col + 4 * j;
      if constexpr (access != GemmAccess::nchw)
        *reinterpret_cast<float4*>(to) = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
      else
        for (int e = 0; e < 4; ++e) to[e] = sum[i][j + e];
    }
}

/// Grid: x tiles, those of the same pixels adjacent; y splits of K; z groups.
template <typename Tile, GemmAccess access>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks)
    implicit_gemm_kernel(const __grid_constant__ ImplicitGemm g) {
  extern __shared__ float4 shared[];
  float* const stage = reinterpret_cast<float*>(shared);
  auto* const origins = reinterpret_cast<PixelOrigin*>(stage + Tile::stages * Tile::stage_floats);
  auto* const bias = reinterpret_cast<float*>(origins + Tile::m);

  const int group = static_cast<int>(blockIdx.z);
  const int first_pixel = static_cast<int>(blockIdx.x / static_cast<unsigned>(g.tiles_n)) * Tile::m;
  const int first_k = static_cast<int>(blockIdx.x % static_cast<unsigned>(g.tiles_n)) * Tile::n;
  const int first_gemm_k = static_cast<int>(blockIdx.y) * g.steps_per_split * gemm_step;
  const int steps = min(g.steps_per_split, (g.gemm_k - first_gemm_k + gemm_step - 1) / gemm_step);

  for (int row = static_cast<int>(threadIdx.x); row < Tile::m; row += Tile::threads)
    origins[row] = pixel_origin(g, first_pixel + row, group);
  InputLoader<Tile, access> input(g, first_gemm_k);
  FilterLoader<Tile> filter(g, group, first_k, first_gemm_k);
  const ThreadPlace<Tile> place;

  // Constant filters do not depend on the previous kernel. They belong to the first group of copies.
  if (g.await_filters) wait_for_previous();
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead)
    if (ahead < steps) filter.load(g, stage + ahead * Tile::stage_floats + Tile::a_floats);
  __syncthreads();
  wait_for_previous();
  let_next_start();
  // The tile's biases come with the first group.
  if (const int k = static_cast<int>(threadIdx.x); k < Tile::n) {
    const bool exists = g.bias != nullptr && first_k + k < g.group_k;
    copy_async<1>(bias + k, exists ? g.bias + group * g.group_k + first_k + k : g.x, exists);
  }
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead) {
    if (ahead < steps) input.load(g, origins, stage + ahead * Tile::stage_floats);
    commit_copies();
  }
  float sum[Tile::rows][Tile::cols] = {};
  const auto load = [&](float* to) {
    input.load(g, origins, to);
    filter.load(g, to + Tile::a_floats);
  };
  multiply_steps<Tile>(stage, steps, place, load, sum);
  static_assert(Tile::m * acc_pitch<Tile, access> <= Tile::stages * Tile::stage_floats);
  // Through shared memory: stores coalesce, and the epilogue's code exists once.
  __syncthreads();
  lay_down<Tile, access>(place, sum, stage);
  if (g.cluster > 1)
    sync_cluster();
  else
    __syncthreads();
  store_tile<Tile, access>(g, stage, bias, first_pixel, first_k, group);
  if (g.cluster > 1) {
    // Others may still read this block's shared memory, which is freed when it exits.
    leave_cluster();
    wait_for_cluster();
  }
}

}  // namespace lenslet::cuda
