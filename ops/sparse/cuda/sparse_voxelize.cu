#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/cuda/sort_entries.cuh"
#include "ops/sparse/cuda/totals_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = site_threads;
/// Points of a cell that one thread adds up; a warp takes cells with more.
constexpr int few_points = 32;

struct PointEntries {
  DeviceGrid grid;
  const float* points;
  std::int64_t columns;
  std::uint32_t rows;  ///< points of an image, not 0
  float low[3], size[3];

  __device__ Entry operator()(std::int64_t i, std::uint64_t&) const {
    const float* const point = points + i * columns;
    // In float32 as on the CPU, so that points on cell faces fall into the same cell.
    const float x = floorf(__fdiv_rn(__fsub_rn(point[0], low[0]), size[0]));
    const float y = floorf(__fdiv_rn(__fsub_rn(point[1], low[1]), size[1]));
    const float z = floorf(__fdiv_rn(__fsub_rn(point[2], low[2]), size[2]));
    const auto inside = [](float at, std::int32_t cells) { return at >= 0 && at < static_cast<float>(cells); };
    if (!inside(x, grid.width) || !inside(y, grid.height) || !inside(z, grid.depth)) return {no_key, i};
    const auto image = static_cast<std::int32_t>(static_cast<std::uint32_t>(i) / rows);
    // Not key(), which drops what is off the grid: rounding may yield the number behind the last cell, which counts on.
    return {image * grid.volume + static_cast<std::int64_t>(z) * grid.plane +
                static_cast<std::int64_t>(y) * grid.width + static_cast<std::int64_t>(x),
            i};
  }
};

struct MeanCall {
  DeviceGrid grid;
  const Entry* sorted = nullptr;
  const std::uint32_t* heads = nullptr;
  const std::int64_t* totals = nullptr;
  const float* points = nullptr;
  std::int64_t count = 0, columns = 0, most = 0;
  std::int32_t* indices = nullptr;
  float* y = nullptr;
  int* fault = nullptr;
};

__global__ void __launch_bounds__(threads) mean_kernel(const __grid_constant__ MeanCall c) {
  wait_for_previous();
  let_next_start();
  const std::int64_t all = c.totals[0];
  const bool wrong = all > c.most;
  if (wrong && blockIdx.x == 0 && threadIdx.x == 0) tell_count(c.fault, SiteFault::sites, all);
  const std::int64_t sites = wrong ? 0 : all;
  fill_with_none(c.indices, sites * 4, c.most * 4);
  fill_with_zeros(c.y, sites * c.columns, c.most * c.columns);
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x, warp = i / warp_threads;
  if (wrong || warp * warp_threads >= c.count) return;

  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t key = i < c.count ? c.sorted[i].key : no_key;
  const bool is_head = key != no_key && (i == 0 || c.sorted[i - 1].key != key);
  const std::int64_t site =
      std::int64_t{c.heads[warp]} + __popc(__ballot_sync(whole_warp, is_head) & ((1U << lane) - 1));
  std::int64_t end = i + 1;
  if (is_head)
    while (end < c.count && end - i <= few_points && c.sorted[end].key == key) ++end;
  const bool is_few = end - i <= few_points;
  if (is_head) {
    put_site(c.indices, 3, site, c.grid.site(key));
    for (std::int64_t column = 0; is_few && column < c.columns; ++column) {
      double sum = 0;  // in the order of the points
      for (std::int64_t j = i; j < end; ++j) sum += double{c.points[c.sorted[j].row * c.columns + column]};
      c.y[site * c.columns + column] = static_cast<float>(sum / static_cast<double>(end - i));
    }
  }
  // The other cells, in the same order, with 32 points read at a time.
  for (unsigned many = __ballot_sync(whole_warp, is_head && !is_few); many != 0; many &= many - 1) {
    const int of = __ffs(static_cast<int>(many)) - 1;
    const std::int64_t begin = __shfl_sync(whole_warp, i, of), to = __shfl_sync(whole_warp, site, of);
    const std::int64_t own = __shfl_sync(whole_warp, key, of);
    const std::int64_t last =
        first_not_below(begin, c.count, own + 1, [&](std::int64_t at) { return c.sorted[at].key; });
    for (std::int64_t column = 0; column < c.columns; ++column) {
      double sum = 0;
      for (std::int64_t j = begin; j < last; j += warp_threads) {
        const float value = j + lane < last ? c.points[c.sorted[j + lane].row * c.columns + column] : 0;
        const int read = last - j < warp_threads ? static_cast<int>(last - j) : warp_threads;
        for (int k = 0; k < read; ++k) sum += double{__shfl_sync(whole_warp, value, k)};
      }
      if (lane == 0) c.y[to * c.columns + column] = static_cast<float>(sum / static_cast<double>(last - begin));
    }
  }
}

struct Memory {
  Parts parts;
  SortMemory sort;
  std::uint32_t* heads;
  std::int64_t* totals;

  Memory(std::int64_t count, std::byte* memory)
      : parts(memory),
        sort(count, parts),
        heads(parts.take<std::uint32_t>(warps_of(count))),
        totals(parts.take<std::int64_t>(1 + Totals::extra)) {}
};

}  // namespace

std::size_t sparse_voxelize_workspace_bytes(const VoxelSizes& sizes) {
  return Memory(sizes.images * sizes.rows, nullptr).parts.bytes();
}

void sparse_voxelize(const Context& context, const SparseGrid& grid, const VoxelSizes& sizes, const float* points,
                     std::int32_t* indices, float* y, std::byte* workspace) {
  const std::int64_t count = sizes.images * sizes.rows;
  const Memory memory(count, workspace);
  const DeviceGrid cells(grid);
  const Entry* const sorted =
      sort_entries(context,
                   PointEntries{.grid = cells,
                                .points = points,
                                .columns = sizes.columns,
                                .rows = static_cast<std::uint32_t>(sizes.rows > 0 ? sizes.rows : 1),
                                .low = {sizes.low[0], sizes.low[1], sizes.low[2]},
                                .size = {sizes.size[0], sizes.size[1], sizes.size[2]}},
                   count, memory.sort, nullptr);
  count_heads(context, sorted, count, memory.heads, nullptr, nullptr);
  make_totals(context, {.counts = memory.heads, .length = warps_of(count), .rows = 1, .totals = memory.totals});
  const unsigned blocks = blocks_for(count, threads);
  launch(context, mean_kernel, blocks > 0 ? blocks : 1, threads, 0,
         MeanCall{.grid = cells,
                  .sorted = sorted,
                  .heads = memory.heads,
                  .totals = memory.totals,
                  .points = points,
                  .count = count,
                  .columns = sizes.columns,
                  .most = sizes.most,
                  .indices = indices,
                  .y = y,
                  .fault = context.fault});
}

}  // namespace lenslet::cuda
