#include <type_traits>

#include "ops/sparse/cuda/cells.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/cuda/sites.cuh"
#include "ops/sparse/cuda/totals_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads;

/// A cell's channels, `volume` elements apart.
template <typename T>
struct Dense {
  const T* x = nullptr;
  std::uint32_t cells = 0, volume = 1;
  std::int64_t channels = 0;

  __device__ const T* at(std::uint32_t cell) const {
    return x + std::int64_t{cell / volume} * channels * volume + cell % volume;
  }
};

/// A float's bits (16 or 32) without the sign. Nonzero for NaN.
template <typename T>
__device__ bool is_zero(T bits) {
  return (bits & static_cast<T>(static_cast<T>(~T{}) >> 1)) == 0;
}

// One cell per thread, including the bits behind the last cell.
template <typename T>
__global__ void __launch_bounds__(threads) mark_kernel(Dense<T> dense, std::uint32_t* bits, std::int64_t padded) {
  wait_for_previous();
  let_next_start();
  const std::int64_t cell = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  bool any = false;
  if (cell < dense.cells) {
    const T* from = dense.at(static_cast<std::uint32_t>(cell));
    for (std::int64_t c = 0; c < dense.channels && !any; ++c, from += dense.volume) any = !is_zero(*from);
  }
  const unsigned which = __ballot_sync(whole_warp, any);
  // Little-endian: the lower half of 64 bits comes first, and lower cells are lower bits.
  if (threadIdx.x % warp_threads == 0 && cell < padded) bits[cell / warp_threads] = which;
}

template <typename T>
struct GatherCall {
  DeviceGrid grid;
  Dense<T> dense;
  Cells cells;
  const std::int64_t* totals = nullptr;
  std::int64_t most = 0;
  std::int32_t* indices = nullptr;
  T* y = nullptr;
  int* fault = nullptr;
};

template <typename T>
__global__ void __launch_bounds__(threads) gather_kernel(const __grid_constant__ GatherCall<T> c) {
  wait_for_previous();
  let_next_start();
  const std::int64_t all = c.totals[0], channels = c.dense.channels;
  const bool wrong = all > c.most;
  if (wrong && blockIdx.x == 0 && threadIdx.x == 0) tell_count(c.fault, SiteFault::sites, all);
  const std::int64_t sites = wrong ? 0 : all, width = 1 + c.grid.dims;
  fill_with_none(c.indices, sites * width, c.most * width);
  fill_with_zeros(c.y, sites * channels, c.most * channels);
  const std::int64_t cell = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (wrong || cell >= c.dense.cells) return;
  if ((c.cells.bits[cell / Cells::cells_of_word] >> cell % Cells::cells_of_word & 1) == 0) return;
  const std::int64_t to = c.cells.number(cell);
  put_site(c.indices, c.grid.dims, to, c.grid.site(cell));
  const T* from = c.dense.at(static_cast<std::uint32_t>(cell));
#pragma unroll 4
  for (std::int64_t i = 0; i < channels; ++i, from += c.dense.volume) c.y[to * channels + i] = *from;
}

struct Memory {
  Parts parts;
  std::int64_t* totals;
  Cells cells;

  Memory(const SparseGrid& grid, std::byte* memory)
      : parts(memory), totals(parts.take<std::int64_t>(Totals::extra)), cells(grid.cells(), parts) {}
};

template <typename T>
void from_dense(const Context& context, const SparseGrid& grid, std::int64_t channels, std::int64_t most,
                const Memory& memory, const void* x, std::int32_t* indices, void* y) {
  const std::int64_t cells = grid.cells(), padded = memory.cells.words * Cells::cells_of_word;
  const std::int64_t volume = cells > 0 ? cells / grid.images : 1;
  const Dense<T> dense{.x = static_cast<const T*>(x),
                       .cells = static_cast<std::uint32_t>(cells),
                       .volume = static_cast<std::uint32_t>(volume),
                       .channels = channels};
  launch(context, mark_kernel<T>, blocks_for(padded, threads), threads, 0, dense,
         reinterpret_cast<std::uint32_t*>(memory.cells.bits), padded);
  number_cells(context, memory.cells);
  make_totals(context,
              {.chunks = memory.cells.chunks, .chunk_count = memory.cells.chunk_count, .totals = memory.totals});
  const unsigned blocks = blocks_for(cells, threads);
  launch(context, gather_kernel<T>, blocks > 0 ? blocks : 1, threads, 0,
         GatherCall<T>{.grid = DeviceGrid(grid),
                       .dense = dense,
                       .cells = memory.cells,
                       .totals = memory.totals,
                       .most = most,
                       .indices = indices,
                       .y = static_cast<T*>(y),
                       .fault = context.fault});
}

}  // namespace

std::size_t sparse_from_dense_workspace_bytes(const SparseGrid& grid) { return Memory(grid, nullptr).parts.bytes(); }

void sparse_from_dense(const Context& context, const SparseGrid& grid, std::int64_t channels, std::int64_t most,
                       std::size_t element_bytes, const void* x, std::int32_t* indices, void* y, std::byte* workspace) {
  const Memory memory(grid, workspace);
  const auto make = element_bytes == 2 ? from_dense<std::uint16_t> : from_dense<std::uint32_t>;
  make(context, grid, channels, most, memory, x, indices, y);
}

}  // namespace lenslet::cuda
