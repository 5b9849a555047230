#pragma once
// The outputs of an input in a regular or transposed geometry, tap by tap.

#include "ops/sparse/cuda/book.cuh"

namespace lenslet::cuda {

inline constexpr int most_taps_of_axis = 5;

/// Calls f(tap, output key or -1) for every tap in order, uniformly in all threads. `is_site`: the site is on the grid;
/// otherwise all keys are -1.
template <bool transposed, typename F>
__device__ void for_each_tap(const DeviceGeometry& g, const DeviceGrid& out, const Site& site, bool is_site,
                             const F& f) {
  std::int32_t x[most_taps_of_axis];  // registers: each costs a division
#pragma unroll
  for (int c = 0; c < most_taps_of_axis; ++c) x[c] = is_site && c < g.x.taps ? g.x.meets<transposed>(site.x, c) : -1;
  for (int a = 0; a < g.z.taps; ++a) {
    const std::int32_t z = is_site ? g.z.meets<transposed>(site.z, a) : -1;
    for (int b = 0; b < g.y.taps; ++b) {
      const std::int32_t y = z >= 0 ? g.y.meets<transposed>(site.y, b) : -1;
      const std::int64_t line = y < 0 ? -1 : site.image * out.volume + z * out.plane + std::int64_t{y} * out.width;
      const int first = (a * g.y.taps + b) * g.x.taps;
#pragma unroll
      for (int c = 0; c < most_taps_of_axis; ++c)
        if (c < g.x.taps) f(first + c, y < 0 || x[c] < 0 ? std::int64_t{-1} : line + x[c]);
    }
  }
}
template <typename F>
__device__ void for_each_tap(const DeviceGeometry& g, const DeviceGrid& out, const Site& site, bool is_site,
                             const F& f) {
  if (g.transposed)
    for_each_tap<true>(g, out, site, is_site, f);
  else
    for_each_tap<false>(g, out, site, is_site, f);
}

/// Input sites and their counters.
struct Inputs {
  DeviceGrid grid, out;
  DeviceGeometry geometry;
  std::int64_t rows, warps;
  const std::int32_t* indices;
  std::uint32_t* counts;  ///< [taps + 1, warps]
  std::uint64_t* faults;  ///< [warps]

  /// This thread's row, and whether its warp has any rows.
  __device__ std::int64_t row(std::int64_t block) const { return block * site_threads + threadIdx.x; }
  __device__ Site site(std::int64_t row) const {
    return row < rows ? site_at(indices, grid.dims, row) : Site{-1, 0, 0, 0};
  }
};

inline Inputs inputs_of(const RulebookPlan& plan, const std::int32_t* indices, std::uint32_t* counts,
                        std::uint64_t* faults) {
  const SparseGrid out = plan.geometry.output(plan.grid);
  return {.grid = DeviceGrid(plan.grid),
          .out = DeviceGrid(out),
          .geometry = DeviceGeometry(plan.geometry, out),
          .rows = plan.max_inputs,
          .warps = (plan.max_inputs + warp_threads - 1) / warp_threads,
          .indices = indices,
          .counts = counts,
          .faults = faults};
}

/// Counts pairs per tap, sites and the first fault of a warp whose first lane has row `row`.
__device__ inline void count_pairs(const Inputs& in, std::int64_t row) {
  const std::int64_t warp = row / warp_threads;
  const bool counts_here = threadIdx.x % warp_threads == 0 && warp < in.warps;
  const Site site = in.site(row);
  const std::uint64_t fault = least_of_warp(fault_of_row(in.grid, in.indices, row, site));
  const unsigned sites = __ballot_sync(whole_warp, site.image >= 0);
  const int taps = in.geometry.volume();
  if (counts_here) {
    in.faults[warp] = fault;
    in.counts[taps * in.warps + warp] = static_cast<std::uint32_t>(__popc(sites));
  }
  for_each_tap(in.geometry, in.out, site, in.grid.has(site), [&](int tap, std::int64_t key) {
    const unsigned which = __ballot_sync(whole_warp, key >= 0);
    if (counts_here) in.counts[tap * in.warps + warp] = static_cast<std::uint32_t>(__popc(which));
  });
}

}  // namespace lenslet::cuda
