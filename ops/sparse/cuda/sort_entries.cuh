#pragma once
// Sorts entries by key, then by row, so that no two are equal and the order is deterministic. Tiles are sorted in
// shared memory, then merged four runs at a time; each entry finds its position by bisection of the three others. Only
// for points, SparseSort and grids with too many cells for a bitmap; sorted sites skip it (rulebook_cuda.h).

#include "ops/sparse/cuda/sites.cuh"
#include "ops/sparse/cuda/sort_entries.h"

namespace lenslet::cuda {

inline constexpr int tile_threads = sort_tile / 2, merge_threads = 256;

__device__ inline bool is_before(const Entry& a, const Entry& b) {
  return a.key < b.key || (a.key == b.key && a.row < b.row);
}

/// Sorts tiles of load(i, fault) for i < count; behind that entries have no key. faults: [tiles, faults_of_tile], or
/// null.
template <typename Load>
__global__ void __launch_bounds__(tile_threads)
    sort_tiles_kernel(const __grid_constant__ Load load, std::int64_t count, Entry* sorted, std::uint64_t* faults) {
  wait_for_previous();
  let_next_start();
  __shared__ Entry tile[sort_tile];
  const std::int64_t begin = std::int64_t{blockIdx.x} * sort_tile;
  const int thread = static_cast<int>(threadIdx.x);
  std::uint64_t fault = no_fault;
#pragma unroll
  for (int i = thread; i < sort_tile; i += tile_threads) {
    std::uint64_t own = no_fault;
    tile[i] = begin + i < count ? load(begin + i, own) : Entry{no_key, begin + i};
    fault = own < fault ? own : fault;
  }
  if (faults != nullptr) {
    fault = least_of_warp(fault);
    if (thread % warp_threads == 0) faults[std::int64_t{blockIdx.x} * faults_of_tile + thread / warp_threads] = fault;
  }
  for (int size = 2; size <= sort_tile; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int low = 2 * thread - (thread & (stride - 1)), high = low + stride;
      const Entry a = tile[low], b = tile[high];
      if (is_before(b, a) == ((low & size) == 0)) {
        tile[low] = b;
        tile[high] = a;
      }
    }
  __syncthreads();
#pragma unroll
  for (int i = thread; i < sort_tile; i += tile_threads)
    if (begin + i < count) sorted[begin + i] = tile[i];
}

/// Sorts `count` entries; returns memory.entries or memory.other, whichever has the result.
template <typename Load>
const Entry* sort_entries(const Context& context, const Load& load, std::int64_t count, const SortMemory& memory,
                          std::uint64_t* faults) {
  launch(context, sort_tiles_kernel<Load>, blocks_for(count, sort_tile), tile_threads, 0, load, count, memory.entries,
         faults);
  return merge_tiles(context, count, memory);
}

}  // namespace lenslet::cuda
