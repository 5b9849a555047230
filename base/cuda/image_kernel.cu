#include "base/cuda/image_kernel.h"
#include "base/cuda/launch.h"
#include "base/resize.h"

namespace lenslet::cuda {
namespace {

// A block computes a tile of columns x tile_rows results. Each of its groups takes every group-th source row: threads
// stage a part of the row in shared memory, 4 coalesced bytes each, then sum the taps of one result column and channel.
// Vertical sums stay in registers and are added over the groups at the end. All integer, so the order does not matter.
constexpr int tile_columns = 32, tile_rows = 8, groups = 4;
constexpr int piece_bytes = 3072;  // a multiple of 3 and of 4
constexpr int rounding = 1 << (tap_bits - 1);

__device__ int to_pixel(int sum) { return min(max(sum >> tap_bits, 0), 255); }

/// ITU-R 601-2 luma in Pillow's fixed point, as on the CPU.
__device__ int luma(const std::uint8_t* rgb) {
  return static_cast<int>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/// `channels` of the resized image: 1 or 3. T: storage type of an element of y.
template <int channels, typename T>
__global__ void __launch_bounds__(tile_columns* channels* groups) resize_normalise(const ImageJob job) {
  wait_for_previous();
  constexpr int group_threads = tile_columns * channels;
  __shared__ alignas(16) std::uint8_t piece[groups][piece_bytes];
  __shared__ int partial[groups][tile_rows][group_threads];
  const int thread = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const int column = thread / channels, channel = thread % channels;
  const int tiles_across = (job.width + tile_columns - 1) / tile_columns;
  const int left = static_cast<int>(blockIdx.x) % tiles_across * tile_columns;
  const int top = static_cast<int>(blockIdx.x) / tiles_across * tile_rows;
  const int last_column = min(left + tile_columns, job.width) - 1, last_row = min(top + tile_rows, job.height) - 1;

  // The source rectangle of the tile.
  const int row_begin = job.rows.first[top];
  int row_end = row_begin;
  for (int r = top; r <= last_row; ++r) row_end = max(row_end, job.rows.first[r] + job.rows.count[r]);
  const int x_begin = job.columns.first[left];
  int x_end = x_begin;
  for (int c = left; c <= last_column; ++c) x_end = max(x_end, job.columns.first[c] + job.columns.count[c]);

  const bool mine = left + column <= last_column;
  const int first = mine ? job.columns.first[left + column] : 0;
  const int count = mine ? job.columns.count[left + column] : 0;
  const int* const weights =
      job.columns.weights + static_cast<std::int64_t>(mine ? left + column : 0) * job.columns.taps;
  const int piece_pixels = piece_bytes / job.source_channels;

  int acc[tile_rows] = {};
  // All groups iterate equally often, the last time perhaps without work, so that all threads reach every barrier.
  for (int turn = row_begin; turn < row_end; turn += groups) {
    const int row = turn + group;
    int sum = rounding;
    const std::uint8_t* const source = job.source + row * job.row_bytes;
    for (int x = x_begin; x < x_end; x += piece_pixels) {
      const int pixels = row < row_end ? min(piece_pixels, x_end - x) : 0;
      const std::uint8_t* const from = source + static_cast<std::int64_t>(x) * job.source_channels;
      const int bytes = pixels * job.source_channels;
      __syncthreads();  // the piece before has been read
      // Aligned words where possible: image rows start at any byte.
      const int lead = static_cast<int>((4 - reinterpret_cast<std::uintptr_t>(from) % 4) % 4);
      const int words = bytes > lead ? (bytes - lead) / 4 : 0;
      for (int i = thread; i < words; i += group_threads) {
        const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(from + lead)[i];
        std::uint8_t* const to = piece[group] + lead + 4 * i;
        to[0] = static_cast<std::uint8_t>(word);
        to[1] = static_cast<std::uint8_t>(word >> 8);
        to[2] = static_cast<std::uint8_t>(word >> 16);
        to[3] = static_cast<std::uint8_t>(word >> 24);
      }
      if (thread < min(lead, bytes)) piece[group][thread] = from[thread];
      for (int i = lead + 4 * words + thread; i < bytes; i += group_threads) piece[group][i] = from[i];
      __syncthreads();
      const int begin = max(first, x), end = min(first + count, x + pixels);
      for (int source_x = begin; source_x < end; ++source_x) {
        const std::uint8_t* const pixel = piece[group] + (source_x - x) * job.source_channels;
        sum += (job.gray ? luma(pixel) : pixel[channel]) * weights[source_x - first];
      }
    }
    const int narrow = to_pixel(sum);
#pragma unroll
    for (int r = 0; r < tile_rows; ++r) {
      if (top + r > last_row) break;
      const int tap = row - job.rows.first[top + r];
      if (tap >= 0 && tap < job.rows.count[top + r])
        acc[r] += narrow * job.rows.weights[static_cast<std::int64_t>(top + r) * job.rows.taps + tap];
    }
  }
#pragma unroll
  for (int r = 0; r < tile_rows; ++r) partial[group][r][thread] = acc[r];
  __syncthreads();

  // Result rows are distributed over the groups.
  const auto* const tables = static_cast<const T*>(job.tables);
  auto* const y = static_cast<T*>(job.y);
  for (int r = group; r < tile_rows && top + r <= last_row; r += groups) {
    if (!mine) continue;
    int sum = rounding;
    for (int g = 0; g < groups; ++g) sum += partial[g][r][thread];
    const bool padding = count == 0 || job.rows.count[top + r] == 0;
    const int value = to_pixel(sum);
    const std::int64_t at = (static_cast<std::int64_t>(top + r) * job.width + left + column) * job.pixel_stride;
    if (channels == job.channels) {
      const int to = job.reversed ? job.channels - 1 - channel : channel;
      y[at + to * job.c_stride] = tables[to * 256 + (padding ? job.pad[channel] : value)];
    } else {
      for (int to = 0; to < job.channels; ++to) {
        const int from = job.reversed ? job.channels - 1 - to : to;
        y[at + to * job.c_stride] = tables[to * 256 + (padding ? job.pad[from] : value)];
      }
    }
  }
}

template <typename T>
void launch_for(const ImageJob& job, const Context& context) {
  const dim3 grid(blocks_for(job.width, tile_columns) * blocks_for(job.height, tile_rows));
  if (job.source_channels == 3 && !job.gray)
    launch(context, resize_normalise<3, T>, grid, dim3(tile_columns * 3, groups), 0, job);
  else
    launch(context, resize_normalise<1, T>, grid, dim3(tile_columns, groups), 0, job);
}

}  // namespace

void image_to_input(const ImageJob& job, const Context& context) {
  if (job.elem_bytes == 2)
    launch_for<std::uint16_t>(job, context);
  else if (job.elem_bytes == 4)
    launch_for<float>(job, context);
  else
    launch_for<double>(job, context);
}

}  // namespace lenslet::cuda
