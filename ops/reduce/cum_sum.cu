#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/reduce/cum_sum_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;

/// Lines whose neighbours in memory are other lines: one for each thread.
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

/// A block for each contiguous line, which it goes along with an element a thread.
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
    // Not the sum less the element, which of infinities would be NaN.
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
  constexpr std::int64_t least_row = 64;  // shorter ones would leave most of a block idle
  dispatch(dtype, CumSumTypes(), [&]<typename T>(std::type_identity<T>) {
    const bool rows = shape.inner == 1 && shape.length >= least_row;
    const auto kernel = shape.product ? (rows ? sum_rows<T, true> : sum_columns<T, true>)
                                      : (rows ? sum_rows<T, false> : sum_columns<T, false>);
    launch(context, kernel, rows ? blocks_for(lines, 1) : blocks_for(lines, threads), threads, 0,
           static_cast<const T*>(x), static_cast<T*>(y), shape);
  });
}

}  // namespace lenslet::cuda
