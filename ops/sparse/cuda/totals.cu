#include "ops/sparse/cuda/sites.cuh"
#include "ops/sparse/cuda/totals_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 1024, warps = threads / warp_threads, per_thread = 4;

/// Exclusive prefix sums of values, in place; returns the total. By one block.
__device__ std::int64_t sums_before(std::uint32_t* values, std::int64_t count) {
  __shared__ std::uint32_t of_warps[warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  std::int64_t known = 0;
  for (std::int64_t begin = 0; begin < count; begin += threads * per_thread) {
    std::uint32_t own[per_thread], sum = 0;
    const std::int64_t at = begin + static_cast<std::int64_t>(threadIdx.x) * per_thread;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      own[i] = at + i < count ? values[at + i] : 0;
      sum += own[i];
    }
    const std::uint32_t so_far = sum_so_far(sum);
    if (lane == warp_threads - 1) of_warps[warp] = so_far;
    __syncthreads();
    // Each warp adds up the warps' sums itself, which saves a second barrier.
    const std::uint32_t all = sum_so_far(of_warps[lane]);
    const std::uint32_t before = warp == 0 ? 0 : __shfl_sync(whole_warp, all, warp - 1);
    std::uint32_t place = static_cast<std::uint32_t>(known) + before + so_far - sum;
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      if (at + i < count) values[at + i] = place;
      place += own[i];
    }
    known += __shfl_sync(whole_warp, all, warps - 1);
    __syncthreads();  // before of_warps is overwritten
  }
  return known;
}

__global__ void __launch_bounds__(threads) totals_kernel(Totals t) {
  wait_for_previous();
  let_next_start();
  const int row = static_cast<int>(blockIdx.x);
  if (row <= t.rows) {
    const std::int64_t total =
        row < t.rows ? sums_before(t.counts + row * t.length, t.length) : sums_before(t.chunks, t.chunk_count);
    if (threadIdx.x == 0) t.totals[row] = total;
    return;
  }
  std::uint64_t least = no_fault;
  for (std::int64_t i = threadIdx.x; i < t.fault_count; i += threads)
    if (t.faults[i] < least) least = t.faults[i];
  __shared__ std::uint64_t of_warps[warps];
  least = least_of_warp(least);
  if (threadIdx.x % warp_threads == 0) of_warps[threadIdx.x / warp_threads] = least;
  __syncthreads();
  least = least_of_warp(of_warps[threadIdx.x % warp_threads]);
  if (threadIdx.x == 0) t.totals[row] = static_cast<std::int64_t>(least);
}

}  // namespace

void make_totals(const Context& context, const Totals& totals) {
  launch(context, totals_kernel, static_cast<unsigned>(totals.rows) + Totals::extra, threads, 0, totals);
}

}  // namespace lenslet::cuda
