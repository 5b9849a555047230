#pragma once
// The mma_gemm kernel: implicit_gemm's GEMM on tensor cores, for 16-bit elements and TF32. K is ordered r, s, c, and a
// thread steps through the same columns of every k-block by additions, as there.

#include <climits>

#include "base/cuda/cluster.cuh"
#include "base/cuda/copy_async.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/stored.cuh"
#include "ops/conv/cuda/device_problem.h"
#include "ops/conv/cuda/mma_gemm_plan.h"
#include "ops/conv/cuda/mma_tile.cuh"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments. Sizes in elements; w [groups][group_k][filter_pitch], zero-padded to filter_pitch.
struct MmaGemm : DeviceProblem<> {
  DeviceActivation activation;
  const void *x = nullptr, *w = nullptr, *residual = nullptr;  ///< residual like y, or null; may be y
  const float* bias = nullptr;                                 ///< [K] or null
  void* y = nullptr;
  int y_pixel = 0;  ///< elements from one pixel of y to the next; K with a residual
  int steps, steps_per_split, tiles_n;
  int split_k;  ///< splits of K; they form a cluster
  int pixels;   ///< N*P*Q
  int pq;
  int group_c, group_k, filter_pitch;
  int window_h, window_w;  ///< R*dilation_h, S*dilation_w
  long long x_image;       ///< elements of an image
  bool store_vectors;      ///< y can be stored by aligned 16 bytes

  explicit MmaGemm(const ConvProblem& problem) : DeviceProblem(problem), activation(problem.activation) {}
};

__device__ inline WindowOrigin window_origin(const MmaGemm& g, int pixel, int group) {
  if (pixel >= g.pixels) return {0, INT_MIN / 2, 0};  // every tap is outside
  const int image = pixel / g.pq, place = pixel % g.pq;
  const int h = place / g.q * g.stride_h - g.pad_top, w = place % g.q * g.stride_w - g.pad_left;
  const long long line = static_cast<long long>(h) * g.width + w;
  return {image * g.x_image + line * g.c + static_cast<long long>(group) * g.group_c, h, w};
}

/// Loads A of a k-block: pieces of 16, 4 or 2 bytes, one column of them a thread.
template <typename Tile, typename T, MmaAccess access>
class WindowLoader {
  static constexpr int bytes = access == MmaAccess::vectors ? 16 : access == MmaAccess::words ? 4 : 2;
  static constexpr int elems = bytes / static_cast<int>(sizeof(T));
  static constexpr int columns = mma_step_bytes / bytes, rows_a_pass = Tile::threads / columns;
  static_assert(elems > 0 && Tile::threads % columns == 0 && Tile::m % rows_a_pass == 0);

 public:
  __device__ WindowLoader(const MmaGemm& g, int first_step) {
    const int thread = static_cast<int>(threadIdx.x);
    column_ = thread % columns;
    row_ = thread / columns;
    const int k_index = first_step * (mma_step_bytes / static_cast<int>(sizeof(T))) + column_ * elems;
    channel_ = k_index % g.group_c;
    const int tap = k_index / g.group_c;
    tap_h_ = tap / g.s * g.dilation_h;
    tap_w_ = tap % g.s * g.dilation_w;
  }

  /// Starts the copies of the next k-block to `a`.
  __device__ void load(const MmaGemm& g, const WindowOrigin* origins, char* a) {
    const T* const x = static_cast<const T*>(g.x);
    const int tap_offset = (tap_h_ * g.width + tap_w_) * g.c + channel_;
    const bool tap_exists = tap_h_ < g.window_h;
#pragma unroll
    for (int i = 0; i < Tile::m / rows_a_pass; ++i) {
      const int row = row_ + i * rows_a_pass;
      const WindowOrigin origin = origins[row];
      const bool inside = tap_exists & (static_cast<unsigned>(origin.h + tap_h_) < static_cast<unsigned>(g.height)) &
                          (static_cast<unsigned>(origin.w + tap_w_) < static_cast<unsigned>(g.width));
      const T* const from = x + (inside ? origin.offset + tap_offset : 0);
      char* const to = a + mma_offset(row, column_ * bytes / 16) + column_ * bytes % 16;
      if constexpr (bytes == 2)
        *reinterpret_cast<unsigned short*>(to) = inside ? *reinterpret_cast<const unsigned short*>(from) : 0;
      else
        copy_async<bytes / 4>(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), inside);
    }
    channel_ += mma_step_bytes / static_cast<int>(sizeof(T));
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

/// Loads B of a k-block: rows of filters.
template <typename Tile, typename T>
class MmaFilterLoader {
  static constexpr int columns = mma_step_bytes / 16, rows_a_pass = Tile::threads / columns;
  static_assert(Tile::n % rows_a_pass == 0);

 public:
  __device__ MmaFilterLoader(const MmaGemm& g, int group, int first_k, int first_step) {
    const int thread = static_cast<int>(threadIdx.x);
    column_ = thread % columns;
    row_ = thread / columns;
    rows_left_ = g.group_k - first_k - row_;
    const long long filter = static_cast<long long>(group) * g.group_k + first_k + row_;
    from_ = static_cast<const char*>(g.w) + filter * g.filter_pitch * static_cast<int>(sizeof(T)) +
            (first_step * columns + column_) * 16;
  }

  __device__ void load(const MmaGemm& g, char* b) {
#pragma unroll
    for (int i = 0; i < Tile::n; i += rows_a_pass) {
      const bool inside = i < rows_left_;
      const char* const from = inside ? from_ + static_cast<long long>(i) * g.filter_pitch * static_cast<int>(sizeof(T))
                                      : static_cast<const char*>(g.w);
      copy_async<4>(reinterpret_cast<float*>(b + mma_offset(row_ + i, column_)), reinterpret_cast<const float*>(from),
                    inside);
    }
    from_ += mma_step_bytes;
  }

 private:
  int row_, column_;
  int rows_left_;     ///< filter rows from this thread's first one to the end of the group
  const char* from_;  ///< that row in the next k-block
};

/// The floats at `from`, in 16-byte loads where `width` allows (the address is aligned then).
template <int width>
__device__ inline void read_floats(float (&value)[width], const float* from) {
  if constexpr (width % 4 == 0)
#pragma unroll
    for (int e = 0; e < width; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + e);
      value[e] = four.x;
      value[e + 1] = four.y;
      value[e + 2] = four.z;
      value[e + 3] = four.w;
    }
  else
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = from[e];
}

/// value = the cluster's partial sums at `mine`, added in rank order.
template <int width>
__device__ inline void reduce_split_k_of(const float* mine, int split_k, float (&value)[width]) {
  if (split_k == 1) return read_floats(value, mine);
#pragma unroll
  for (int e = 0; e < width; ++e) value[e] = 0;
  constexpr int together = 4;  // loads in flight; with all eight the smallest tiles spill
#pragma unroll
  for (int first = 0; first < max_mma_split_k; first += together) {
    float theirs[together][width];
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i < split_k) read_floats(theirs[i], in_block(first + i, mine));
#pragma unroll
    for (int i = 0; i < together; ++i)
      if (first + i < split_k)
#pragma unroll
        for (int e = 0; e < width; ++e) value[e] += theirs[i][e];
  }
}

/// 16-bit outputs may use approximate functions.
template <typename T, int width>
__device__ inline void activate(const MmaGemm& g, float (&value)[width]) {
  if (g.activation.is_clamp()) {
    const Clamp clamp = g.activation.clamp();
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = clamp(value[e]);
  } else if constexpr (sizeof(T) == 2) {
    g.activation.apply_for_halves(value);
  } else {
#pragma unroll
    for (int e = 0; e < width; ++e) value[e] = g.activation(value[e]);
  }
}

/// Epilogue of the tile `sums`, [m][acc_pitch] in shared memory, `width` adjacent outputs at a time. In a cluster each
/// block reduces and writes its part.
template <typename Tile, typename T, int width>
__device__ inline void finish_tile(const MmaGemm& g, const float* acc, int first_pixel, int first_k, int group) {
  constexpr int row_items = Tile::n / width, items = Tile::m * row_items;
  constexpr int batch = 2;  // so that reads of the residual overlap
  static_assert(items % Tile::threads == 0);
  const int stride = g.split_k * Tile::threads;
  T* const y = static_cast<T*>(g.y);
  const T* const residual = static_cast<const T*>(g.residual);
#pragma unroll 1
  for (int first = static_cast<int>(blockIdx.y) * Tile::threads + static_cast<int>(threadIdx.x); first < items;
       first += batch * stride) {
    float value[batch][width];
    long long at[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int item = first + i * stride;
      const int row = item / row_items, col = item % row_items * width;
      const int pixel = first_pixel + row, in_group = first_k + col, k = group * g.group_k + in_group;
      at[i] = -1;
      if (item >= items || pixel >= g.pixels || in_group >= g.group_k) continue;
      at[i] = static_cast<long long>(pixel) * g.y_pixel + k;
      float added[width] = {};
      if (residual != nullptr) read_stored(added, residual + at[i]);
      reduce_split_k_of(acc + row * Tile::acc_pitch + col, g.split_k, value[i]);
      if (g.bias != nullptr)
#pragma unroll
        for (int e = 0; e < width; ++e) value[i][e] += g.bias[k + e];
#pragma unroll
      for (int e = 0; e < width; ++e) value[i][e] += added[e];
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (at[i] < 0) continue;
      activate<T>(g, value[i]);
      write_stored(y + at[i], value[i]);
    }
  }
}

/// Grid: x tiles, those of the same pixels adjacent; y splits of K; z groups.
template <typename Tile, typename T, MmaAccess access>
__global__ void __launch_bounds__(Tile::threads, Tile::shape.blocks)
    mma_gemm_kernel(const __grid_constant__ MmaGemm g) {
  extern __shared__ float4 shared[];
  char* const stages = reinterpret_cast<char*>(shared);
  auto* const origins = reinterpret_cast<WindowOrigin*>(stages + Tile::stages * Tile::stage_bytes);

  const int group = static_cast<int>(blockIdx.z);
  const int first_pixel = static_cast<int>(blockIdx.x / static_cast<unsigned>(g.tiles_n)) * Tile::m;
  const int first_k = static_cast<int>(blockIdx.x % static_cast<unsigned>(g.tiles_n)) * Tile::n;
  const int first_step = static_cast<int>(blockIdx.y) * g.steps_per_split;
  const int steps = min(g.steps_per_split, g.steps - first_step);

  for (int row = static_cast<int>(threadIdx.x); row < Tile::m; row += Tile::threads)
    origins[row] = window_origin(g, first_pixel + row, group);
  WindowLoader<Tile, T, access> window(g, first_step);
  MmaFilterLoader<Tile, T> filter(g, group, first_k, first_step);

  // Filters do not depend on the previous kernel. They belong to the first group of copies.
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead)
    if (ahead < steps) filter.load(g, stages + ahead * Tile::stage_bytes + Tile::a_bytes);
  __syncthreads();
  wait_for_previous();
  let_next_start();
#pragma unroll
  for (int ahead = 0; ahead < Tile::stages - 1; ++ahead) {
    if (ahead < steps) window.load(g, origins, stages + ahead * Tile::stage_bytes);
    commit_copies();
  }

  WarpAcc<Tile::warp_m / 16, Tile::warp_n / 8> acc;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % Tile::shape.warps_m * Tile::warp_m, warp_col = warp / Tile::shape.warps_m * Tile::warp_n;
  const auto base = static_cast<unsigned>(__cvta_generic_to_shared(stages));
  int slot = 0, load_slot = Tile::stages - 1;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<Tile::stages - 2>();
    // Also: the stage multiplied last is free and filled next.
    __syncthreads();
    if (step + Tile::stages - 1 < steps) {
      char* const to = stages + load_slot * Tile::stage_bytes;
      window.load(g, origins, to);
      filter.load(g, to + Tile::a_bytes);
    }
    commit_copies();
    const unsigned stage = base + static_cast<unsigned>(slot * Tile::stage_bytes);
    acc.template multiply_step<T>(stage + static_cast<unsigned>(warp_row * mma_step_bytes),
                                  stage + static_cast<unsigned>(Tile::a_bytes + warp_col * mma_step_bytes));
    slot = slot + 1 == Tile::stages ? 0 : slot + 1;
    load_slot = load_slot + 1 == Tile::stages ? 0 : load_slot + 1;
  }

  // Through shared memory: stores coalesce, and the epilogue's code exists once.
  __syncthreads();
  float* const laid = reinterpret_cast<float*>(shared);
  acc.lay_down(laid + warp_row * Tile::acc_pitch + warp_col, Tile::acc_pitch);
  if (g.split_k > 1)
    sync_cluster();
  else
    __syncthreads();
  if (g.store_vectors)
    finish_tile<Tile, T, vector_elems<T>>(g, laid, first_pixel, first_k, group);
  else
    finish_tile<Tile, T, 1>(g, laid, first_pixel, first_k, group);
  if (g.split_k > 1) {
    // Others may still read this block's shared memory, which is freed when it exits.
    leave_cluster();
    wait_for_cluster();
  }
}

}  // namespace lenslet::cuda
