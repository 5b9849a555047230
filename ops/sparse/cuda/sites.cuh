#pragma once
// Rows of indices on the device: sites, their faults, and searches by key.

#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/sparse/cuda/device_grid.h"
#include "ops/sparse/site_fault.h"

namespace lenslet::cuda {

inline constexpr unsigned whole_warp = 0xffffffffU;

/// Threads per block, with 32 rows per warp.
inline constexpr int site_threads = 256;

__device__ inline Site site_at(const std::int32_t* indices, int dims, std::int64_t row) {
  if (dims == 3) {
    const int4 v = reinterpret_cast<const int4*>(indices)[row];
    return {v.x, v.y, v.z, v.w};
  }
  const std::int32_t* const v = indices + 3 * row;
  return {v[0], 0, v[1], v[2]};
}
__device__ inline void put_site(std::int32_t* indices, int dims, std::int64_t row, const Site& site) {
  if (dims == 3) {
    reinterpret_cast<int4*>(indices)[row] = make_int4(site.image, site.z, site.y, site.x);
    return;
  }
  std::int32_t* const v = indices + 3 * row;
  v[0] = site.image;
  v[1] = site.y;
  v[2] = site.x;
}

// A row's fault is one number whose minimum is the first faulty row, independent of thread order.
inline constexpr std::uint64_t no_fault = ~std::uint64_t{0};
__device__ inline std::uint64_t fault_at(std::int64_t row, SiteFault kind) {
  return static_cast<std::uint64_t>(row) << 4 | static_cast<std::uint64_t>(kind);
}

/// Marks a fault whose row is a position among sorted entries: reported only if no row has a fault itself.
inline constexpr std::uint64_t of_sorted = std::uint64_t{1} << 62;

/// The fault of row `row`, judged by the row before it. Only the first faulty row is certain to be reported correctly,
/// because all rows before it are valid.
__device__ inline std::uint64_t fault_of_row(const DeviceGrid& grid, const std::int32_t* indices, std::int64_t row,
                                             const Site& site) {
  if (site.image < 0) return no_fault;
  const Site before = row > 0 ? site_at(indices, grid.dims, row - 1) : site;
  if (before.image < 0) return fault_at(row, SiteFault::behind_empty);
  if (!grid.has(site)) return fault_at(row, SiteFault::outside);
  if (row == 0) return no_fault;
  const std::int64_t own = grid.key(site), last = grid.key(before);
  if (own == last) return fault_at(row, SiteFault::twice);
  return own < last && last != no_key ? fault_at(row, SiteFault::out_of_order) : no_fault;
}

template <typename T>
__device__ T least_of_warp(T value) {
#pragma unroll
  for (int step = warp_threads / 2; step > 0; step /= 2) {
    const T other = shuffle_xor(value, step);
    value = other < value ? other : value;
  }
  return value;
}

/// Inclusive prefix sum of `value` over the lanes of a warp.
template <typename T>
__device__ T sum_so_far(T value) {
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
#pragma unroll
  for (int step = 1; step < warp_threads; step *= 2) {
    const T other = __shfl_up_sync(whole_warp, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

/// The number of rows [0, count) with keys below `wanted`, if sorted. A 32-way search by the whole warp: 4 dependent
/// reads instead of 18 for 160,000 rows. Unsorted rows give some number in [0, count].
__device__ inline std::int64_t rows_below(const DeviceGrid& grid, const std::int32_t* indices, std::int64_t count,
                                          std::int64_t wanted) {
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
  std::int64_t begin = 0, end = count;
  while (end - begin > warp_threads) {
    const std::int64_t step = (end - begin + warp_threads - 1) / warp_threads, at = begin + (lane + 1) * step - 1;
    const bool below = at < end && grid.key(site_at(indices, grid.dims, at)) < wanted;
    const int steps = __popc(__ballot_sync(whole_warp, below));
    const std::int64_t next = begin + (steps + 1) * step - 1;
    begin += steps * step;
    end = next < end ? next : end;
    begin = begin < end ? begin : end;
  }
  const bool below = begin + lane < end && grid.key(site_at(indices, grid.dims, begin + lane)) < wanted;
  return begin + __popc(__ballot_sync(whole_warp, below));
}

/// Lower bound of `wanted` in the ascending range [begin, end); key_at(i) gives an element.
template <typename Index, typename KeyAt>
__device__ Index first_not_below(Index begin, Index end, std::int64_t wanted, const KeyAt& key_at) {
  while (begin < end) {
    const Index middle = begin + (end - begin) / 2;
    if (key_at(middle) < wanted)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// Reports a fault; by one thread.
__device__ inline void tell(int* fault, SiteFault kind, std::int64_t row, std::int64_t other, const Site& site,
                            int dims, std::int64_t count) {
  if (fault == nullptr) return;
  fault[1] = static_cast<int>(row);
  fault[2] = static_cast<int>(other);
  fault[3] = site.image;
  fault[4] = dims == 3 ? site.z : site.y;
  fault[5] = dims == 3 ? site.y : site.x;
  fault[6] = site.x;
  fault[7] = static_cast<int>(count);
  fault[8] = static_cast<int>(count >> 32);
  fault[0] = static_cast<int>(kind);
}
__device__ inline void tell_count(int* fault, SiteFault kind, std::int64_t count) {
  tell(fault, kind, 0, -1, {0, 0, 0, 0}, 3, count);
}
/// Reports a result of fault_of_row().
__device__ inline void tell_row(int* fault, std::uint64_t found, const DeviceGrid& grid, const std::int32_t* indices) {
  const auto kind = static_cast<SiteFault>(found & 15);
  const auto row = static_cast<std::int64_t>(found >> 4);
  std::int64_t other = -1;
  if (kind == SiteFault::behind_empty)  // the first of the empty rows
    for (other = row - 1; other > 0 && site_at(indices, grid.dims, other - 1).image < 0;) --other;
  tell(fault, kind, row, other, site_at(indices, grid.dims, row), grid.dims, 0);
}

/// Fills ints [begin, end) with -1, with all threads of the grid.
__device__ inline void fill_with_none(std::int32_t* values, std::int64_t begin, std::int64_t end) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = begin + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += threads)
    values[i] = -1;
}
template <typename T>
__device__ void fill_with_zeros(T* values, std::int64_t begin, std::int64_t end) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = begin + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end; i += threads)
    values[i] = T{};
}

}  // namespace lenslet::cuda
