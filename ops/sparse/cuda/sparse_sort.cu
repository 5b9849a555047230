#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/cuda/row_lanes.cuh"
#include "ops/sparse/cuda/sort_entries.cuh"
#include "ops/sparse/cuda/totals_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads;

struct RowEntries {
  DeviceGrid grid;
  const std::int32_t* indices;

  __device__ Entry operator()(std::int64_t row, std::uint64_t& fault) const {
    const Site site = site_at(indices, grid.dims, row);
    const std::int64_t key = grid.key(site);
    if (site.image >= 0 && key == no_key) fault = fault_at(row, SiteFault::outside);
    return {key, row};
  }
};

template <typename T>
struct MoveCall {
  DeviceGrid grid;
  const Entry* sorted = nullptr;
  const std::int64_t* totals = nullptr;
  const std::int32_t* indices = nullptr;
  const T* x = nullptr;
  std::int32_t* to_indices = nullptr;
  T* y = nullptr;
  std::int64_t channels = 0, most = 0;
  int lanes = 1;  ///< of a row
  int* fault = nullptr;
};

template <typename T>
__global__ void __launch_bounds__(threads) move_kernel(const __grid_constant__ MoveCall<T> c) {
  wait_for_previous();
  let_next_start();
  const std::int64_t live = c.totals[0];
  const auto found = static_cast<std::uint64_t>(c.totals[2]);
  const bool wrong = found != no_fault || live > c.most;
  if (wrong && blockIdx.x == 0 && threadIdx.x == 0) {
    if (found == no_fault) {
      tell_count(c.fault, SiteFault::sites, live);
    } else if ((found & of_sorted) != 0) {
      const auto at = static_cast<std::int64_t>((found & ~of_sorted) >> 4);
      const std::int64_t row = c.sorted[at].row;
      tell(c.fault, SiteFault::twice, row, c.sorted[at - 1].row, site_at(c.indices, c.grid.dims, row), c.grid.dims, 0);
    } else {
      tell_row(c.fault, found, c.grid, c.indices);
    }
  }
  const std::int64_t sites = wrong ? 0 : live, width = 1 + c.grid.dims;
  fill_with_none(c.to_indices, sites * width, c.most * width);
  fill_with_zeros(c.y, sites * c.channels, c.most * c.channels);
  const std::int64_t to = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / c.lanes;
  if (to >= sites) return;
  const int lane = static_cast<int>(threadIdx.x) % c.lanes;
  const std::int64_t from = c.sorted[to].row;
  if (lane == 0) put_site(c.to_indices, c.grid.dims, to, site_at(c.indices, c.grid.dims, from));
  for (std::int64_t i = lane; i < c.channels; i += c.lanes) c.y[to * c.channels + i] = c.x[from * c.channels + i];
}

struct Memory {
  Parts parts;
  SortMemory sort;
  std::uint64_t* faults;  // of the tiles' rows, then of what is sorted
  std::uint32_t* live;
  std::int64_t* totals;

  Memory(const SortSizes& sizes, std::byte* memory)
      : parts(memory),
        sort(sizes.rows, parts),
        faults(parts.take<std::uint64_t>(of_tiles(sizes) + warps_of(sizes.rows))),
        live(parts.take<std::uint32_t>(warps_of(sizes.rows))),
        totals(parts.take<std::int64_t>(1 + Totals::extra)) {}
  static std::int64_t of_tiles(const SortSizes& sizes) { return tiles_of(sizes.rows) * faults_of_tile; }
};

template <typename T>
void move(const Context& context, const SparseGrid& grid, const SortSizes& sizes, const Entry* sorted,
          const Memory& memory, const std::int32_t* indices, const void* x, std::int32_t* to_indices, void* y) {
  const int lanes = lanes_of_row(sizes.channels);
  const unsigned blocks = blocks_for(sizes.most * lanes, threads);
  launch(context, move_kernel<T>, blocks > 0 ? blocks : 1, threads, 0,
         MoveCall<T>{.grid = DeviceGrid(grid),
                     .sorted = sorted,
                     .totals = memory.totals,
                     .indices = indices,
                     .x = static_cast<const T*>(x),
                     .to_indices = to_indices,
                     .y = static_cast<T*>(y),
                     .channels = sizes.channels,
                     .most = sizes.most,
                     .lanes = lanes,
                     .fault = context.fault});
}

}  // namespace

std::size_t sparse_sort_workspace_bytes(const SortSizes& sizes) { return Memory(sizes, nullptr).parts.bytes(); }

void sparse_sort(const Context& context, const SparseGrid& grid, const SortSizes& sizes, std::size_t element_bytes,
                 const std::int32_t* indices, const void* x, std::int32_t* to_indices, void* y, std::byte* workspace) {
  const Memory memory(sizes, workspace);
  const std::int64_t of_tiles = Memory::of_tiles(sizes), warps = warps_of(sizes.rows);
  const Entry* const sorted =
      sort_entries(context, RowEntries{DeviceGrid(grid), indices}, sizes.rows, memory.sort, memory.faults);
  count_heads(context, sorted, sizes.rows, nullptr, memory.live, memory.faults + of_tiles);
  make_totals(context, {.counts = memory.live,
                        .length = warps,
                        .rows = 1,
                        .faults = memory.faults,
                        .fault_count = of_tiles + warps,
                        .totals = memory.totals});
  const auto moving = element_bytes == 2 ? move<std::uint16_t> : move<std::uint32_t>;
  moving(context, grid, sizes, sorted, memory, indices, x, to_indices, y);
}

}  // namespace lenslet::cuda
