#pragma once
// The kernel of grouped_mma and grouped_tf32, for T: Float16, BFloat16, or float (TF32). A block loads its halo tile
// into shared memory, its warps multiply out of it (mma.sync), and the results then overwrite it, so that whole pixels
// are written.
//
// Operand A is a fragment: 16 pixels (16 columns, or 8 columns of two rows) by a k-block of two vectors of 16 bytes
// (GroupedFilters). It comes by ldmatrix, and with filters three high is multiplied at once for the three output rows
// that use it.

#include "base/cuda/fast_divider.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "ops/conv/cuda/grouped_mma_plan.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {

/// w in the layout of GroupedFilters.
struct GroupedCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int set_eights;       ///< of channels, and of filters
  int steps;            ///< k-blocks of a set and filter row
  int block_channels;   ///< whole sets
  int filter_warps;     ///< adjacent over a block's channels
  int tile_p, q_shift;  ///< tile_q as a power of two: 8 or 16
  int line_pixels;      ///< row pitch of the halo tile in pixels: phases * phase_pixels
  int halo_pixels;
  int pixel_vectors, laid_vectors;
  FastDivider chunks, tiles_q, tiles_p;  ///< blocks over the channels, columns and rows
  FastDivider vectors;                   ///< of a pixel
  FastDivider phase_pixels, phases;      ///< of a row of the halo tile
  FastDivider strides_w, warps_a_set;
};

/// A block's tile: constants of a kernel of 16 bits, arguments of one of TF32. `phased`: columns a stride apart are
/// adjacent in the halo tile; otherwise every second pixel would hit the same banks.
template <typename T, int eights, int stride>
struct GroupedTile {
  static constexpr bool phased = false;
  static constexpr int set_eights = eights, filter_warps = grouped_half_sets(eights, stride), warps_a_set = 1;
  static constexpr int tile_p = 8, q_shift = 4, threads = 32 * grouped_most_warps;
  __device__ explicit GroupedTile(const GroupedCall&) {}
};
template <int eights, int stride>
struct GroupedTile<float, eights, stride> {
  static constexpr bool phased = true;
  int set_eights, filter_warps, tile_p, q_shift, threads;
  __device__ explicit GroupedTile(const GroupedCall& call)
      : set_eights(call.set_eights),
        filter_warps(call.filter_warps),
        tile_p(call.tile_p),
        q_shift(call.q_shift),
        threads(static_cast<int>(blockDim.x)) {}
};

/// Resident blocks that registers allow. Strided ones of 16 bits are bound by memory: 8x512x28x28 -> 512, 3x3 s2, 32
/// groups 5.9 us for 7.2 with two blocks, batch 64 39.4 for 42.5. Three or four eights are slower with three blocks
/// (8x1512x14x14, 63 groups: 10.2 us for 8.4).
constexpr int grouped_resident_blocks(bool half, int eights, int stride) {
  if (!half) return eights == 1 ? 4 : eights == 2 ? 3 : 2;
  return stride == 1 ? (eights == 1 ? 3 : 2) : eights <= 2 ? 4 : 2;
}

/// `rows_together` filter rows are multiplied at once: 3 for filters of that height with known `stride`, else 1
/// (`stride` is then 2 and means any). `eights`: of filters a warp.
template <typename T, int eights, int rows_together, int stride>
__global__ void __launch_bounds__(32 * grouped_most_warps,
                                  grouped_resident_blocks(is_half<T>, eights, rows_together == 1 ? 1 : stride))
    grouped_kernel(const __grid_constant__ GroupedCall call) {
  constexpr int rows = grouped_warp_rows(is_half<T>, eights, stride), of_vector = 16 / sizeof(T);
  extern __shared__ uint4 shared[];
  const GroupedTile<T, eights, stride> tile(call);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  int image = static_cast<int>(blockIdx.x);
  const int first_channel = call.chunks.split(image) * call.block_channels;
  const int first_q = call.tiles_q.split(image) << tile.q_shift, first_p = call.tiles_p.split(image) * tile.tile_p;

  // This warp's tile rows and filters. The upper half of a fragment is eight columns or half a tile further.
  const bool wide = tile.q_shift == 4;
  const int upper_rows = wide ? 0 : tile.tile_p / 2;
  int set = warp % tile.filter_warps;
  const int first_row = warp / tile.filter_warps * rows;
  int first_eight = 0;  // in the set
  if constexpr (!is_half<T>) first_eight = call.warps_a_set.split(set) * eights;
  const int set_channel = set * 8 * tile.set_eights;  // in the block's channels
  const int first_filter = set_channel + 8 * first_eight;
  const bool busy = first_channel + set_channel < call.c && first_p + first_row < call.p;

  // Filters are constant: loaded before the previous kernel ends.
  uint2 b[rows_together][eights];
  const int sets_before = (first_channel + set_channel) / (8 * tile.set_eights);
  const uint2* w = static_cast<const uint2*>(call.w) + lane +
                   (static_cast<std::int64_t>(sets_before) * call.steps * call.r * tile.set_eights + first_eight) * 32;
  const auto load_filters = [&](uint2(&to)[rows_together][eights]) {
#pragma unroll
    for (int i = 0; i < rows_together; ++i) {
#pragma unroll
      for (int n = 0; n < eights; ++n) to[i][n] = __ldg(w + n * 32);
      w += tile.set_eights * 32;
    }
  };
  if (busy) load_filters(b);
  wait_for_previous();
  let_next_start();

  {
    const T* const x = static_cast<const T*>(call.x) +
                       static_cast<std::int64_t>(image) * call.height * call.width * call.c + first_channel;
    const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
    const int vectors = static_cast<int>(call.vectors.divisor());
    for (int i = thread; i < call.halo_pixels * vectors; i += tile.threads) {
      int pixel = i;
      const int vector = call.vectors.split(pixel);
      int row = pixel, width = left;
      if constexpr (tile.phased) {
        const int in_phase = call.phase_pixels.split(row);
        width += in_phase * call.stride_w + call.phases.split(row);
      } else {
        width += call.phase_pixels.split(row);
      }
      const int h = top + row;
      const bool inside = first_channel + vector * of_vector < call.c &&
                          static_cast<unsigned>(h) < static_cast<unsigned>(call.height) &&
                          static_cast<unsigned>(width) < static_cast<unsigned>(call.width);
      copy_async_16(
          shared + pixel * call.pixel_vectors + vector,
          inside ? static_cast<const void*>(x + (h * call.width + width) * call.c + vector * of_vector) : call.x,
          inside);
    }
  }
  float acc[rows][eights][4];
#pragma unroll
  for (int n = 0; n < eights; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool biased = busy && call.bias != nullptr;
      const float begin = biased ? call.bias[first_channel + first_filter + 8 * n + lane % 4 * 2 + i % 2] : 0.0F;
#pragma unroll
      for (int row = 0; row < rows; ++row) acc[row][n][i] = begin;
    }
  wait_for_all_copies();
  __syncthreads();

  if (busy) {
    // Lanes 0 to 15 address the fragment's pixels and the k-block's first vector, the others the second.
    const auto line = static_cast<unsigned>(call.line_pixels * call.pixel_vectors * 16);
    const int half = lane / 16, beside = tile.phased ? 1 : call.stride_w;
    const int upper = wide ? 8 * beside : upper_rows * call.stride_h * call.line_pixels;
    const int pixel = first_row * call.stride_h * call.line_pixels + lane % 8 * beside + (lane % 16 >= 8 ? upper : 0);
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(shared)) +
                           static_cast<unsigned>((pixel * call.pixel_vectors + set_channel / of_vector) * 16);
    const int set_vectors = tile.set_eights * 8 / of_vector, columns = is_half<T> && eights == 1 ? 2 : 1;
    constexpr bool loads_ahead = eights < (is_half<T> ? 4 : 3);  // a second set of more does not fit into registers
    const int filter_rows = rows_together == 1 ? call.r : 1;     // or all three at once
    constexpr int unrolled = is_half<T> ? 4 : 1;
    int left = call.steps * filter_rows;
    for (int s = 0; s < call.s; s += columns) {
      // The excess of the last k-block is read twice, and meets zeros.
      int column = (columns == 2 ? min(s + half, call.s - 1) : s) * call.dilation_w;
      if constexpr (tile.phased) {
        const int phase = call.strides_w.split(column);
        column += phase * static_cast<int>(call.phase_pixels.divisor());
      }
      for (int vector = 0; vector < set_vectors; vector += 2) {
        const int of_lane = set_vectors % 2 == 0 ? vector + half : min(vector + half, set_vectors - 1);
        const unsigned from = first + static_cast<unsigned>((column * call.pixel_vectors + of_lane) * 16);
#pragma unroll unrolled
        for (int r = 0; r < filter_rows; ++r) {
          const bool more = --left > 0;
          uint2 next[rows_together][eights] = {};
          if (loads_ahead && more) load_filters(next);
          if constexpr (rows_together == 1) {
#pragma unroll
            for (int row = 0; row < rows; ++row) {
              std::uint32_t a[4];
              ldmatrix(a, from + static_cast<unsigned>(row * call.stride_h + r * call.dilation_h) * line);
              round_operand<T>(a);
#pragma unroll
              for (int n = 0; n < eights; ++n) mma<T>(acc[row][n], a, b[0][n].x, b[0][n].y);
            }
          } else {
#pragma unroll
            for (int h = 0; h < (rows - 1) * stride + rows_together; ++h) {
              std::uint32_t a[4];
              ldmatrix(a, from + static_cast<unsigned>(h) * line);
              round_operand<T>(a);
#pragma unroll
              for (int i = 0; i < rows_together; ++i) {
                const int row = (h - i) / stride;
                if (h < i || (h - i) % stride != 0 || row >= rows) continue;
#pragma unroll
                for (int n = 0; n < eights; ++n) mma<T>(acc[row][n], a, b[i][n].x, b[i][n].y);
              }
            }
          }
          if constexpr (loads_ahead) {
#pragma unroll
            for (int i = 0; i < rows_together * eights; ++i) b[i / eights][i % eights] = next[i / eights][i % eights];
          } else {
            if (more) load_filters(b);
          }
        }
      }
    }
  }

  // The results overwrite the halo tile: of 16 bits as they are stored, of TF32 without residual and activation, which
  // take fewer instructions where whole vectors are written.
  __syncthreads();
  const std::int64_t image_y = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel + first_channel;
  const T* const residual = static_cast<const T*>(call.residual) + image_y;
  if (busy) {
    const int upper = wide ? 8 : upper_rows * 8;
#pragma unroll
    for (int row = 0; row < rows; ++row)
#pragma unroll
      for (int n = 0; n < eights; ++n) {
        float4 value{acc[row][n][0], acc[row][n][1], acc[row][n][2], acc[row][n][3]};
        const int at = (((first_row + row) << tile.q_shift) + lane / 4) * call.laid_vectors * 4;
        const int element = first_filter + 8 * n + lane % 4 * 2;
        if constexpr (is_half<T>) {
          const int p = first_p + first_row + row, q = first_q + lane / 4;
          if (call.residual != nullptr && p < call.p) {
            const T* const from = residual + (p * call.q + q) * call.y_pixel + element;
            if (q < call.q) {
              const float2 pair = widened_pair<T>(*reinterpret_cast<const std::uint32_t*>(from));
              value.x += pair.x, value.y += pair.y;
            }
            if (q + 8 < call.q) {
              const float2 pair = widened_pair<T>(*reinterpret_cast<const std::uint32_t*>(from + 8 * call.y_pixel));
              value.z += pair.x, value.w += pair.y;
            }
          }
          value = call.activation(value);
          std::uint32_t* const to = reinterpret_cast<std::uint32_t*>(shared) + at + element / 2;
          to[0] = narrowed_pair<T>(value.x, value.y);
          to[upper * call.laid_vectors * 4] = narrowed_pair<T>(value.z, value.w);
        } else {
          float2* const to = reinterpret_cast<float2*>(reinterpret_cast<float*>(shared) + at + element);
          to[0] = {value.x, value.y};
          to[upper * call.laid_vectors * 2] = {value.z, value.w};
        }
      }
  }
  __syncthreads();
  T* const y = static_cast<T*>(call.y) + image_y;
  const Clamp clamp = call.activation.clamp();
  const bool clamps = call.activation.is_clamp();
  const int vectors = static_cast<int>(call.vectors.divisor());
  for (int i = thread; i < (tile.tile_p << tile.q_shift) * vectors; i += tile.threads) {
    int pixel = i;
    const int vector = call.vectors.split(pixel), row = pixel >> tile.q_shift;
    const int p = first_p + row, q = first_q + pixel - (row << tile.q_shift);
    if (p >= call.p || q >= call.q || first_channel + vector * of_vector >= call.c) continue;
    const std::int64_t at = static_cast<std::int64_t>(p * call.q + q) * call.y_pixel + vector * of_vector;
    const uint4* const from = shared + pixel * call.laid_vectors + vector;
    if constexpr (is_half<T>) {
      *reinterpret_cast<uint4*>(y + at) = *from;
    } else {
      float4 value = *reinterpret_cast<const float4*>(from);
      if (call.residual != nullptr) value = value + *reinterpret_cast<const float4*>(residual + at);
      value = clamps ? float4{clamp(value.x), clamp(value.y), clamp(value.z), clamp(value.w)} : call.activation(value);
      *reinterpret_cast<float4*>(y + at) = value;
    }
  }
}

}  // namespace lenslet::cuda
