// grouped_mma: grouped convolutions with few channels a group on tensor cores, NHWC, 16 bits.
//
// Channels are processed in blocks of as many eights as hold whole groups: one for groups of 4 or 8, two for 16, three
// for 12 or 24, four for 32. A block is a small dense convolution with zeros across groups; an infinity times such a
// zero gives NaN, as in Winograd. Operand A is 16 neighbouring pixels by k 16: eights of two filter columns, or two
// eights of one. ldmatrix reads it from a halo tile in shared memory; with 3x3 filters it is multiplied at once for the
// three output rows that use it.

#include "ops/conv/cuda/grouped_mma.h"

#include "base/cuda/fast_divider.h"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/one_launch.cuh"

namespace lenslet::cuda {
namespace {

using namespace grouped_mma_sizes;

/// w [blocks of channels][k-blocks][R][eights of filters][lanes] of two words: a lane's fragment of B. A k-block is two
/// filter columns (one eight a block) or two eights of one.
struct GroupedCall : UntypedConvCall {
  using UntypedConvCall::UntypedConvCall;
  int steps;
  int halo_columns, halo_pixels;
  int pixel_vectors;  ///< pixel pitch of the halo tile in 16 bytes: odd, so that eight pixels are in different banks
  int chunk;          ///< channels of a thread block
  FastDivider chunks, tiles_q, tiles_p, vectors, columns;
};

/// Work split over warps: blocks of channels, and rows of the tile.
template <int eights, int stride>
struct WarpTile {
  static constexpr int channel_blocks = channel_blocks_of(eights, stride);
  static constexpr int row_groups = warps / channel_blocks;
  static constexpr int rows = tile_p / row_groups;
};

/// Resident blocks that registers allow. Strided ones are bound by memory: 8x512x28x28 -> 512, 3x3 s2, 32 groups 5.9 us
/// for 7.2 with two blocks, batch 64 39.4 for 42.5. Three or four eights are slower with three blocks (8x1512x14x14,
/// 63 groups: 10.2 us for 8.4).
constexpr int resident_blocks(int eights, int stride) {
  return stride == 1 ? (eights == 1 ? 3 : 2) : eights <= 2 ? 4 : 2;
}

/// `rows_together` filter rows are multiplied at once: 3 for filters of that height with known `stride`, else 1
/// (`stride` is then 2 and means any).
template <typename T, int eights, int rows_together, int stride>
__global__ void __launch_bounds__(block_threads, resident_blocks(eights, rows_together == 1 ? 1 : stride))
    grouped_kernel(const __grid_constant__ GroupedCall call) {
  using Warp = WarpTile<eights, stride>;
  extern __shared__ uint4 shared[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  int image = static_cast<int>(blockIdx.x);
  const int first_channel = call.chunks.split(image) * call.chunk;
  const int first_q = call.tiles_q.split(image) * tile_q, first_p = call.tiles_p.split(image) * tile_p;
  const int channel_block = warp % Warp::channel_blocks, first_row = warp / Warp::channel_blocks * Warp::rows;
  const int channel = first_channel + channel_block * 8 * eights;
  const bool busy = channel < call.c && first_p + first_row < call.p;

  // Filters are constant: loaded before the previous kernel ends.
  uint2 b[rows_together][eights];
  const uint2* w = static_cast<const uint2*>(call.w) +
                   static_cast<std::int64_t>(channel / (8 * eights)) * call.steps * call.r * eights * 32 + lane;
  const auto load_filters = [&](uint2(&to)[rows_together][eights]) {
#pragma unroll
    for (int i = 0; i < rows_together * eights; ++i) to[i / eights][i % eights] = __ldg(w + i * 32);
    w += rows_together * eights * 32;
  };
  if (busy) load_filters(b);
  wait_for_previous();
  let_next_start();

  const T* const x = static_cast<const T*>(call.x) +
                     static_cast<std::int64_t>(image) * call.height * call.width * call.c + first_channel;
  const int top = first_p * call.stride_h - call.pad_top, left = first_q * call.stride_w - call.pad_left;
  const int vectors = static_cast<int>(call.vectors.divisor());
  for (int i = thread; i < call.halo_pixels * vectors; i += block_threads) {
    int pixel = i;
    const int vector = call.vectors.split(pixel);
    int row = pixel;
    const int width = left + call.columns.split(row), h = top + row;
    const bool inside = first_channel + vector * 8 < call.c &&
                        static_cast<unsigned>(h) < static_cast<unsigned>(call.height) &&
                        static_cast<unsigned>(width) < static_cast<unsigned>(call.width);
    copy_async_16(shared + pixel * call.pixel_vectors + vector,
                  inside ? static_cast<const void*>(x + (h * call.width + width) * call.c + vector * 8) : call.x,
                  inside);
  }
  float acc[Warp::rows][eights][4];
#pragma unroll
  for (int n = 0; n < eights; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float begin = busy && call.bias != nullptr ? call.bias[channel + 8 * n + lane % 4 * 2 + i % 2] : 0.0F;
#pragma unroll
      for (int row = 0; row < Warp::rows; ++row) acc[row][n][i] = begin;
    }
  wait_for_all_copies();
  __syncthreads();

  if (busy) {
    const int line = call.halo_columns * call.pixel_vectors;
    const uint4* const pixel = shared + lane % 16 * call.stride_w * call.pixel_vectors + channel_block * eights +
                               first_row * call.stride_h * line;
    constexpr int steps_a_column = (eights + 1) / 2;
    constexpr bool loads_ahead = eights < 4;  // a second set of four eights does not fit into registers
    for (int step = 0; step < call.steps; ++step) {
      // The excess of the last k-block is read twice, and meets zeros.
      const int half = lane / 16;
      const int column = eights == 1 ? min(2 * step + half, call.s - 1) : step / steps_a_column;
      const int eight = eights == 1 ? 0 : min(step % steps_a_column * 2 + half, eights - 1);
      const uint4* const from = pixel + column * call.dilation_w * call.pixel_vectors + eight;
      for (int r = 0; r < call.r; r += rows_together) {
        const bool more = step + 1 < call.steps || r + rows_together < call.r;
        uint2 next[rows_together][eights] = {};
        if (loads_ahead && more) load_filters(next);
        if constexpr (rows_together == 1) {
#pragma unroll
          for (int row = 0; row < Warp::rows; ++row) {
            std::uint32_t a[4];
            ldmatrix(a, from + (row * call.stride_h + r * call.dilation_h) * line);
#pragma unroll
            for (int n = 0; n < eights; ++n) mma<T>(acc[row][n], a, b[0][n].x, b[0][n].y);
          }
        } else {
#pragma unroll
          for (int h = 0; h < (Warp::rows - 1) * stride + rows_together; ++h) {
            std::uint32_t a[4];
            ldmatrix(a, from + h * line);
#pragma unroll
            for (int i = 0; i < rows_together; ++i) {
              const int row = (h - i) / stride;
              if (h < i || (h - i) % stride != 0 || row >= Warp::rows) continue;
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

  // The output tile reuses the halo tile's memory, so that whole pixels are written.
  __syncthreads();
  const std::int64_t image_y = static_cast<std::int64_t>(image) * call.p * call.q * call.y_pixel;
  if (busy) {
    const T* const residual = static_cast<const T*>(call.residual) + image_y;
    std::uint32_t* const words = reinterpret_cast<std::uint32_t*>(shared);
#pragma unroll
    for (int row = 0; row < Warp::rows; ++row)
#pragma unroll
      for (int n = 0; n < eights; ++n) {
        float4 value{acc[row][n][0], acc[row][n][1], acc[row][n][2], acc[row][n][3]};
        const int p = first_p + first_row + row, q = first_q + lane / 4;
        if (call.residual != nullptr && p < call.p) {
          const T* const from = residual + (p * call.q + q) * call.y_pixel + channel + 8 * n + lane % 4 * 2;
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
        const int at = ((first_row + row) * tile_q + lane / 4) * call.pixel_vectors + channel_block * eights + n;
        words[at * 4 + lane % 4] = narrowed_pair<T>(value.x, value.y);
        words[(at + 8 * call.pixel_vectors) * 4 + lane % 4] = narrowed_pair<T>(value.z, value.w);
      }
  }
  __syncthreads();
  T* const y = static_cast<T*>(call.y) + image_y + first_channel;
  for (int i = thread; i < tile_p * tile_q * vectors; i += block_threads) {
    int pixel = i;
    const int vector = call.vectors.split(pixel), p = first_p + pixel / tile_q, q = first_q + pixel % tile_q;
    if (p < call.p && q < call.q && first_channel + vector * 8 < call.c)
      *reinterpret_cast<uint4*>(y + (p * call.q + q) * call.y_pixel + vector * 8) =
          shared[pixel * call.pixel_vectors + vector];
  }
}

template <typename T, int eights>
void (*kernel_for(int rows_together, std::int64_t stride))(GroupedCall) {
  if (rows_together == 1) return grouped_kernel<T, eights, 1, 2>;
  return stride == 1 ? grouped_kernel<T, eights, 3, 1> : grouped_kernel<T, eights, 3, 2>;
}
template <typename T>
void (*kernel_for(std::int64_t eights, int rows_together, std::int64_t stride))(GroupedCall) {
  switch (eights) {
    case 1:
      return kernel_for<T, 1>(rows_together, stride);
    case 2:
      return kernel_for<T, 2>(rows_together, stride);
    case 3:
      return kernel_for<T, 3>(rows_together, stride);
    default:
      return kernel_for<T, 4>(rows_together, stride);
  }
}

}  // namespace

std::unique_ptr<const BoundKernel> bind_grouped_mma(const ConvProblem& p, int rows) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const HaloTile halo_tile(p, rows);
  GroupedCall call(p);
  call.steps = narrow(step_count(p));
  call.halo_columns = narrow(halo_tile.columns);
  call.halo_pixels = narrow(halo_tile.rows * halo_tile.columns);
  call.pixel_vectors = narrow(halo_tile.pixel_vectors);
  call.chunk = narrow(chunk_of(p, rows));
  call.chunks = FastDivider(blocks_over(p.c, chunk_of(p, rows)));
  call.tiles_q = FastDivider(blocks_over(p.q, tile_q));
  call.tiles_p = FastDivider(blocks_over(p.p, tile_p));
  call.vectors = FastDivider(chunk_of(p, rows) / 8);
  call.columns = FastDivider(halo_tile.columns);
  const std::int64_t eights = eights_of(p);
  return std::make_unique<OneLaunch<GroupedCall>>(
      p, call,
      p.storage == DType::f16 ? kernel_for<Float16>(eights, rows, p.stride_h)
                              : kernel_for<BFloat16>(eights, rows, p.stride_h),
      static_cast<unsigned>(block_count(p, rows)), block_threads, static_cast<std::size_t>(halo_tile.bytes()));
}

}  // namespace lenslet::cuda
