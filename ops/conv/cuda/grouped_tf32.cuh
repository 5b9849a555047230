#pragma once
// The grouped_tf32 kernel: a block loads its halo tile into shared memory, its warps multiply out of it
// (mma.sync.m16n8k8), and the accumulators then overwrite it, so that whole pixels are written.
//
// Operand A is a fragment: 16 pixels (16 columns, or 8 columns of two rows) by an eight of channels at one tap. It
// comes by ldmatrix, is rounded to TF32 in registers, and with filters three high is multiplied at once for the three
// output rows that use it. Columns a stride apart are adjacent in the halo tile: otherwise every second pixel would hit
// the same banks.

#include "base/cuda/copy_async.cuh"
#include "base/cuda/fast_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "ops/conv/cuda/grouped_tf32_plan.h"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {

/// w in the layout of GroupedTf32Filters.
struct GroupedTf32 : ConvCall<> {
  using ConvCall::ConvCall;
  int set_eights;       ///< of channels, and of filters
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

/// `rows_together` filter rows are multiplied at once: 3 for filters of that height with known `stride`, else 1
/// (`stride` is then 2 and means any). `eights`: of filters a warp.
template <int eights, int rows_together, int stride>
__global__ void __launch_bounds__(32 * grouped_tf32_most_warps, eights == 1   ? 4
                                                                : eights == 2 ? 3
                                                                              : 2)
    grouped_tf32_kernel(const __grid_constant__ GroupedTf32 call) {
  constexpr int rows = grouped_tf32_rows;
  extern __shared__ float4 shared[];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / 32, lane = thread % 32;
  int image = static_cast<int>(blockIdx.x);
  const int first_channel = call.chunks.split(image) * call.block_channels;
  const int first_q = call.tiles_q.split(image) << call.q_shift, first_p = call.tiles_p.split(image) * call.tile_p;

  // This warp's tile rows and filters. The upper half of a fragment is eight columns or half a tile further.
  const bool wide = call.q_shift == 4;
  const int upper_rows = wide ? 0 : call.tile_p / 2;
  int set = warp % call.filter_warps;
  const int first_row = warp / call.filter_warps * rows;
  const int first_eight = call.warps_a_set.split(set) * eights;  // in the set
  const int set_channel = set * 8 * call.set_eights;             // in the block's channels
  const int first_filter = set_channel + 8 * first_eight;
  const bool busy = first_channel + set_channel < call.c && first_p + first_row < call.p;

  // Filters are constant: loaded before the previous kernel ends.
  float2 b[rows_together][eights];
  const int sets_before = first_channel / (8 * call.set_eights) + set;
  const float2* w =
      reinterpret_cast<const float2*>(call.w) + lane +
      (static_cast<std::int64_t>(sets_before) * call.s * call.set_eights * call.r * call.set_eights + first_eight) * 32;
  const auto load_filters = [&](float2(&to)[rows_together][eights]) {
#pragma unroll
    for (int i = 0; i < rows_together; ++i) {
#pragma unroll
      for (int n = 0; n < eights; ++n) to[i][n] = __ldg(w + n * 32);
      w += call.set_eights * 32;
    }
  };
  if (busy) load_filters(b);
  wait_for_previous();
  let_next_start();

  {
    const float* const x =
        call.x + static_cast<std::int64_t>(image) * call.height * call.width * call.c + first_channel;
    const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
    const int vectors = static_cast<int>(call.vectors.divisor());
    for (int i = thread; i < call.halo_pixels * vectors; i += threads) {
      int pixel = i;
      const int vector = call.vectors.split(pixel);
      int row = pixel;
      const int in_phase = call.phase_pixels.split(row), phase = call.phases.split(row);
      const int h = top + row, width = left + in_phase * call.stride_w + phase;
      const bool inside = first_channel + vector * 4 < call.c &&
                          static_cast<unsigned>(h) < static_cast<unsigned>(call.height) &&
                          static_cast<unsigned>(width) < static_cast<unsigned>(call.width);
      copy_async<4>(reinterpret_cast<float*>(shared + pixel * call.pixel_vectors + vector),
                    inside ? x + (h * call.width + width) * call.c + vector * 4 : call.x, inside);
    }
    commit_copies();
  }
  float acc[rows][eights][4];
#pragma unroll
  for (int n = 0; n < eights; ++n) {
    float2 begin{};
    if (busy && call.bias != nullptr)
      begin = {call.bias[first_channel + first_filter + 8 * n + lane % 4 * 2],
               call.bias[first_channel + first_filter + 8 * n + lane % 4 * 2 + 1]};
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      acc[row][n][0] = acc[row][n][2] = begin.x;
      acc[row][n][1] = acc[row][n][3] = begin.y;
    }
  }
  wait_for_copies<0>();
  __syncthreads();

  if (busy) {
    const auto line = static_cast<unsigned>(call.line_pixels * call.pixel_vectors * 16);
    // Lanes 0 to 15 address the fragment's pixels and their first four channels, the others the next four.
    const int upper = wide ? 8 : upper_rows * call.stride_h * call.line_pixels;
    const int pixel = first_row * call.stride_h * call.line_pixels + lane % 8 + (lane % 16 >= 8 ? upper : 0);
    const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(shared)) +
                           static_cast<unsigned>((pixel * call.pixel_vectors + set_channel / 4 + lane / 16) * 16);
    constexpr bool loads_ahead = eights < 3;  // a second set of more does not fit into registers
    int left = call.s * call.set_eights * call.r / rows_together;
    for (int s = 0; s < call.s; ++s) {
      int column = s * call.dilation_w;
      const int phase = call.strides_w.split(column);
      unsigned from = first + static_cast<unsigned>((phase * static_cast<int>(call.phase_pixels.divisor()) + column) *
                                                    call.pixel_vectors * 16);
      for (int eight = 0; eight < call.set_eights; ++eight, from += 32)
        for (int r = 0; r < call.r; r += rows_together) {
          const bool more = --left > 0;
          float2 next[rows_together][eights] = {};
          if (loads_ahead && more) load_filters(next);
          const auto multiply = [&](float(&sum)[4], const unsigned(&a)[4], float2 filter) {
            mma<float>(sum, a, __float_as_uint(filter.x), __float_as_uint(filter.y));
          };
          if constexpr (rows_together == 1) {
#pragma unroll
            for (int row = 0; row < rows; ++row) {
              unsigned a[4];
              ldmatrix(a, from + static_cast<unsigned>(row * call.stride_h + r * call.dilation_h) * line);
              round_operand<float>(a);
#pragma unroll
              for (int n = 0; n < eights; ++n) multiply(acc[row][n], a, b[0][n]);
            }
          } else {
#pragma unroll
            for (int h = 0; h < (rows - 1) * stride + rows_together; ++h) {
              unsigned a[4];
              ldmatrix(a, from + static_cast<unsigned>(h) * line);
              round_operand<float>(a);
#pragma unroll
              for (int i = 0; i < rows_together; ++i) {
                const int row = (h - i) / stride;
                if (h < i || (h - i) % stride != 0 || row >= rows) continue;
#pragma unroll
                for (int n = 0; n < eights; ++n) multiply(acc[row][n], a, b[i][n]);
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

  // The accumulators overwrite the halo tile.
  __syncthreads();
  if (busy) {
    const int upper = wide ? 8 : upper_rows * 8;
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      float2* const to =
          reinterpret_cast<float2*>(shared + (((first_row + row) << call.q_shift) + lane / 4) * call.laid_vectors) +
          first_filter / 2 + lane % 4;
#pragma unroll
      for (int n = 0; n < eights; ++n) {
        to[n * 4] = {acc[row][n][0], acc[row][n][1]};
        to[n * 4 + upper * call.laid_vectors * 2] = {acc[row][n][2], acc[row][n][3]};
      }
    }
  }
  __syncthreads();
  const std::int64_t image_y = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel + first_channel;
  const Clamp clamp = call.activation.clamp();
  const bool clamps = call.activation.is_clamp();
  const int vectors = static_cast<int>(call.vectors.divisor());
  for (int i = thread; i < (call.tile_p << call.q_shift) * vectors; i += threads) {
    int pixel = i;
    const int vector = call.vectors.split(pixel);
    const int p = first_p + (pixel >> call.q_shift), q = first_q + pixel - (pixel >> call.q_shift << call.q_shift);
    if (p >= call.p || q >= call.q || first_channel + vector * 4 >= call.c) continue;
    const std::int64_t at = image_y + static_cast<std::int64_t>(p * call.q + q) * call.y_pixel + vector * 4;
    float4 value = shared[pixel * call.laid_vectors + vector];
    if (call.residual != nullptr) value = value + *reinterpret_cast<const float4*>(call.residual + at);
    value = clamps ? float4{clamp(value.x), clamp(value.y), clamp(value.z), clamp(value.w)} : call.activation(value);
    *reinterpret_cast<float4*>(call.y + at) = value;
  }
}

}  // namespace lenslet::cuda
