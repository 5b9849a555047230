#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/reduce/cum_sum_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;

constexpr int tile_warps = 32;
constexpr int tile_each = 8;  ///< elements of a thread, all read before the first is needed

/// Short lines, one per thread.
template <typename T, bool product>
__global__ void __launch_bounds__(threads) sum_columns(const T* x, T* y, CumSumShape shape) {
  wait_for_previous();
  const std::int64_t line = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (line >= shape.outer * shape.inner) return;
  const std::int64_t outer = line / shape.inner,
                     begin = outer * shape.length * shape.inner + line - outer * shape.inner;
  RunningSum<T> sum = product ? 1 : 0;
  for (std::int64_t i = 0; i < shape.length; ++i) {
    const std::int64_t at = begin + (shape.reverse ? shape.length - 1 - i : i) * shape.inner;
    const auto value = static_cast<RunningSum<T>>(x[at]);
    const RunningSum<T> with = joined<product>(sum, value);
    y[at] = static_cast<T>(shape.exclusive ? sum : with);
    sum = with;
  }
}

/// Lines whose neighbours in memory are other lines: a block takes 32 adjacent ones, with 8 elements along them per
/// thread. One thread per line would read serially (4096 lines of 4096: 1624 us).
template <typename T, bool product>
__global__ void __launch_bounds__(tile_warps* warp_threads) sum_tiles(const T* x, T* y, CumSumShape shape) {
  using Sum = RunningSum<T>;
  wait_for_previous();
  __shared__ Sum totals[tile_warps][warp_threads];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t line = std::int64_t{blockIdx.x} * warp_threads + lane;
  const std::int64_t length = line < shape.outer * shape.inner ? shape.length : 0, outer = line / shape.inner;
  const std::int64_t begin = outer * shape.length * shape.inner + line - outer * shape.inner;
  const auto place = [&](std::int64_t i) { return begin + (shape.reverse ? shape.length - 1 - i : i) * shape.inner; };
  constexpr Sum none = product ? 1 : 0;
  Sum before = none;  // of all tiles before
  for (std::int64_t tile = 0; tile < shape.length; tile += tile_warps * tile_each) {
    const std::int64_t first = tile + warp * tile_each;
    T read[tile_each];
#pragma unroll
    for (int k = 0; k < tile_each; ++k) read[k] = first + k < length ? x[place(first + k)] : T(none);
    Sum sums[tile_each], total = none;
#pragma unroll
    for (int k = 0; k < tile_each; ++k) {
      const Sum with = joined<product>(total, static_cast<Sum>(read[k]));
      sums[k] = shape.exclusive ? total : with;
      total = with;
    }
    totals[warp][lane] = total;
    __syncthreads();
    Sum earlier = before;
    for (int w = 0; w < tile_warps; ++w) {
      if (w == warp) earlier = before;
      before = joined<product>(before, totals[w][lane]);
    }
#pragma unroll
    for (int k = 0; k < tile_each; ++k)
      if (first + k < length) y[place(first + k)] = static_cast<T>(joined<product>(earlier, sums[k]));
    __syncthreads();
  }
}

/// Contiguous lines, one per block, one element per thread.
template <typename T, bool product>
__global__ void __launch_bounds__(threads) sum_rows(const T* x, T* y, CumSumShape shape) {
  using Sum = RunningSum<T>;
  wait_for_previous();
  __shared__ Sum totals[warps];
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t begin = std::int64_t{blockIdx.x} * shape.length;
  constexpr Sum none = product ? 1 : 0;
  Sum before = none;  // of all turns before
  for (std::int64_t first = 0; first < shape.length; first += threads) {
    const std::int64_t i = first + threadIdx.x, at = begin + (shape.reverse ? shape.length - 1 - i : i);
    Sum sum = i < shape.length ? static_cast<Sum>(x[at]) : none;
    for (int step = 1; step < warp_threads; step *= 2) {
      const Sum other = __shfl_up_sync(0xffffffffU, sum, step);
      if (lane >= step) sum = joined<product>(sum, other);
    }
    if (lane == warp_threads - 1) totals[warp] = sum;
    // Not the sum minus the element, which is NaN for infinities.
    if (shape.exclusive) {
      sum = __shfl_up_sync(0xffffffffU, sum, 1);
      if (lane == 0) sum = none;
    }
    __syncthreads();
    Sum earlier = before;
    for (int w = 0; w < warps; ++w) {
      if (w == warp) earlier = before;
      before = joined<product>(before, totals[w]);
    }
    if (i < shape.length) y[at] = static_cast<T>(joined<product>(earlier, sum));
    __syncthreads();
  }
}

}  // namespace

void cum_sum(const Context& context, DType dtype, const CumSumShape& shape, const void* x, void* y) {
  const std::int64_t lines = shape.outer * shape.inner;
  if (lines == 0 || shape.length == 0) return;
  constexpr std::int64_t least = 64;  // shorter ones would leave most of a block idle
  dispatch(dtype, CumSumTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto run = [&](auto of_sums, auto of_products, unsigned blocks, int block) {
      launch(context, shape.product ? of_products : of_sums, blocks, block, 0, static_cast<const T*>(x),
             static_cast<T*>(y), shape);
    };
    if (shape.length < least)
      return run(sum_columns<T, false>, sum_columns<T, true>, blocks_for(lines, threads), threads);
    if (shape.inner == 1) return run(sum_rows<T, false>, sum_rows<T, true>, blocks_for(lines, 1), threads);
    run(sum_tiles<T, false>, sum_tiles<T, true>, blocks_for(lines, warp_threads), tile_warps * warp_threads);
  });
}

}  // namespace lenslet::cuda
