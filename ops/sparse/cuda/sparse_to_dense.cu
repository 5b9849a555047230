// Each cell is written once, site or not: a block of cells finds the rows of its sites by bisection, since they are
// sorted.
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/cuda/sites.cuh"
#include "ops/sparse/cuda/workspace.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads, cells_of_block = threads, channels_of_block = 32;
constexpr std::int64_t most_grid_y = 65535;

std::int64_t warps_of(std::int64_t rows) { return (rows + warp_threads - 1) / warp_threads; }

__global__ void __launch_bounds__(threads)
    check_kernel(DeviceGrid grid, const std::int32_t* indices, std::int64_t rows, std::uint64_t* faults) {
  wait_for_previous();
  let_next_start();
  const std::int64_t row = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const Site site = row < rows ? site_at(indices, grid.dims, row) : Site{-1, 0, 0, 0};
  const std::uint64_t fault = least_of_warp(fault_of_row(grid, indices, row, site));
  if (threadIdx.x % warp_threads == 0 && row < rows) faults[row / warp_threads] = fault;
}

/// By one block.
__device__ void tell_first(int* fault, const DeviceGrid& grid, const std::int32_t* indices, const std::uint64_t* faults,
                           std::int64_t count) {
  __shared__ std::uint64_t of_warps[threads / warp_threads];
  std::uint64_t least = no_fault;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) least = faults[i] < least ? faults[i] : least;
  least = least_of_warp(least);
  if (threadIdx.x % warp_threads == 0) of_warps[threadIdx.x / warp_threads] = least;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const std::uint64_t other : of_warps) least = other < least ? other : least;
  if (least != no_fault) tell_row(fault, least, grid, indices);
}

template <typename T>
struct DenseCall {
  DeviceGrid grid;
  const std::int32_t* indices = nullptr;
  const T* x = nullptr;
  T* y = nullptr;
  std::int64_t rows = 0, channels = 0, channels_of_block = 1, blocks_of_image = 1;
  const std::uint64_t* faults = nullptr;
  std::int64_t fault_count = 0;
  int* fault = nullptr;
};

template <typename T>
__global__ void __launch_bounds__(threads) dense_kernel(const __grid_constant__ DenseCall<T> c) {
  wait_for_previous();
  let_next_start();
  __shared__ std::int32_t row_of[cells_of_block];
  __shared__ std::int64_t ends[2];
  const std::int64_t image = blockIdx.x / c.blocks_of_image;
  const std::int64_t first = blockIdx.x % c.blocks_of_image * cells_of_block, first_key = image * c.grid.volume + first;
  const std::int64_t left = c.grid.volume - first, cells = left < cells_of_block ? left : cells_of_block;
  const int thread = static_cast<int>(threadIdx.x);
  row_of[thread] = -1;
  if (thread < 2 * warp_threads) {
    const int end = thread / warp_threads;
    const std::int64_t at = rows_below(c.grid, c.indices, c.rows, first_key + end * cells);
    if (thread % warp_threads == 0) ends[end] = at;
  }
  __syncthreads();
  for (std::int64_t row = ends[0] + thread; row < ends[1]; row += threads) {
    const std::int64_t cell = c.grid.key(site_at(c.indices, c.grid.dims, row)) - first_key;
    if (cell >= 0 && cell < cells) row_of[cell] = static_cast<std::int32_t>(row);  // always true for sorted sites
  }
  __syncthreads();
  if (thread < cells) {
    const std::int64_t row = row_of[thread], begin = blockIdx.y * c.channels_of_block;
    const std::int64_t end = begin + c.channels_of_block < c.channels ? begin + c.channels_of_block : c.channels;
    T* y = c.y + (image * c.channels + begin) * c.grid.volume + first + thread;
#pragma unroll 4
    for (std::int64_t channel = begin; channel < end; ++channel, y += c.grid.volume)
      *y = row < 0 ? T{} : c.x[row * c.channels + channel];
  }
  if (blockIdx.x == 0 && blockIdx.y == 0) tell_first(c.fault, c.grid, c.indices, c.faults, c.fault_count);
}

template <typename T>
void to_dense(const Context& context, const SparseGrid& grid, std::int64_t rows, std::int64_t channels,
              const std::int32_t* indices, const void* x, void* y, const std::uint64_t* faults) {
  const std::int64_t volume = grid.cells() / grid.images, blocks = (volume + cells_of_block - 1) / cells_of_block;
  const std::int64_t least = (channels + most_grid_y - 1) / most_grid_y;
  const std::int64_t together = least > channels_of_block ? least : channels_of_block;
  // Without channels nothing is written, but sites are checked.
  const unsigned groups = channels > 0 ? blocks_for(channels, together) : 1;
  const std::int64_t all_blocks = channels > 0 ? grid.images * blocks : 1;
  launch(context, dense_kernel<T>, dim3(static_cast<unsigned>(all_blocks), groups), threads, 0,
         DenseCall<T>{.grid = DeviceGrid(grid),
                      .indices = indices,
                      .x = static_cast<const T*>(x),
                      .y = static_cast<T*>(y),
                      .rows = rows,
                      .channels = channels,
                      .channels_of_block = together,
                      .blocks_of_image = blocks,
                      .faults = faults,
                      .fault_count = warps_of(rows),
                      .fault = context.fault});
}

}  // namespace

std::size_t sparse_to_dense_workspace_bytes(std::int64_t rows) {
  Parts parts;
  parts.take<std::uint64_t>(warps_of(rows));
  return parts.bytes();
}

void sparse_to_dense(const Context& context, const SparseGrid& grid, std::int64_t rows, std::int64_t channels,
                     std::size_t element_bytes, const std::int32_t* indices, const void* x, void* y,
                     std::byte* workspace) {
  auto* const faults = Parts(workspace).take<std::uint64_t>(warps_of(rows));
  launch(context, check_kernel, blocks_for(rows, threads), threads, 0, DeviceGrid(grid), indices, rows, faults);
  const auto make = element_bytes == 2 ? to_dense<std::uint16_t> : to_dense<std::uint32_t>;
  make(context, grid, rows, channels, indices, x, y, faults);
}

}  // namespace lenslet::cuda
