#include "ops/cuda/softmax.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/cuda/radix.cuh"
#include "ops/cuda/warp.cuh"
#include "runtime/base/cuda/launch.h"

namespace lenslet::cuda {

namespace {

constexpr int block_threads = 256;
constexpr int most_threads = 1024;
/// Elements of a row that a thread keeps in registers.
constexpr int held_elems = 8;
constexpr float least = -std::numeric_limits<float>::infinity();

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// `value` joined over the `group` neighbouring threads that share a row: a power of two, at most blockDim.x. All
/// threads of the block take part. `shared` has an element for each warp.
template <typename T, typename Join>
__device__ T join_row(T value, int group, T* shared, Join join) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int mask = 1; mask < min(group, warp_threads); mask *= 2) value = join(value, shuffle_xor(value, mask));
  if (group <= warp_threads) return value;
  if (thread % warp_threads == 0) shared[thread / warp_threads] = value;
  __syncthreads();
  const int first = thread / group * (group / warp_threads);
  value = shared[first];
  for (int warp = 1; warp < group / warp_threads; ++warp) value = join(value, shared[first + warp]);
  return value;
}

/// Rows of neighbouring elements, `group` threads each. `held`: at most held_elems * group long, and read once.
template <bool held>
__global__ void __launch_bounds__(most_threads)
    softmax_rows(const float* x, float* y, std::int64_t rows, std::int64_t length, int group, bool log) {
  using Sum = std::conditional_t<held, float, double>;
  wait_for_previous();
  __shared__ float tops[most_threads / warp_threads];
  __shared__ Sum sums[most_threads / warp_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int member = thread % group, rows_per_block = static_cast<int>(blockDim.x) / group;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + thread / group;
  const std::int64_t here = row < rows ? length : 0;  // threads without a row still meet the others
  const float* from = x + row * length;
  float* to = y + row * length;
  float top = least;
  Sum sum = 0;
  if constexpr (held) {
    float values[held_elems];
#pragma unroll
    for (int i = 0; i < held_elems; ++i) {
      const int at = member + i * group;
      values[i] = at < here ? from[at] : least;
      top = fmaxf(top, values[i]);
    }
    top = join_row(top, group, tops, Max{});
#pragma unroll
    for (int i = 0; i < held_elems; ++i) {
      const float shifted = values[i] - top;
      const float power = member + i * group < here ? expf(shifted) : 0.0f;
      values[i] = log ? shifted : power;
      sum += power;
    }
    sum = join_row(sum, group, sums, Add{});
    const float scale = 1 / sum, shift = logf(sum);
#pragma unroll
    for (int i = 0; i < held_elems; ++i) {
      const int at = member + i * group;
      if (at < here) to[at] = log ? values[i] - shift : values[i] * scale;
    }
  } else {
    for (std::int64_t i = member; i < here; i += group) top = fmaxf(top, from[i]);
    top = join_row(top, group, tops, Max{});
    for (std::int64_t i = member; i < here; i += group) sum += static_cast<double>(expf(from[i] - top));
    sum = join_row(sum, group, sums, Add{});
    const auto scale = static_cast<float>(1 / sum), shift = static_cast<float>(::log(sum));
    for (std::int64_t i = member; i < here; i += group) {
      const float shifted = from[i] - top;
      to[i] = log ? shifted - shift : expf(shifted) * scale;
    }
  }
}

/// `value` joined over the threads of one column: same threadIdx.x.
template <typename T, typename Join>
__device__ T join_column(T value, T* shared, Join join) {
  if (blockDim.y == 1) return value;
  shared[threadIdx.y * blockDim.x + threadIdx.x] = value;
  __syncthreads();
  value = shared[threadIdx.x];
  for (unsigned i = 1; i < blockDim.y; ++i) value = join(value, shared[i * blockDim.x + threadIdx.x]);
  return value;
}

/// A column of elements `inner` apart for each threadIdx.x; the threads of equal threadIdx.x take its lines in turn.
/// Each writes only what it alone reads, so y may be x.
__global__ void __launch_bounds__(block_threads)
    softmax_columns(const float* x, float* y, std::int64_t columns, std::int64_t length, Radix inner, bool narrow,
                    bool log) {
  wait_for_previous();
  __shared__ float tops[block_threads];
  __shared__ double sums[block_threads];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t here = column < columns ? length : 0;
  std::int64_t outer = column;
  const std::int64_t first = take_digit(outer, inner, narrow);
  const std::int64_t start = outer * length * inner.value + first;
  const std::int64_t member = threadIdx.y, members = blockDim.y;
  float top = least;
#pragma unroll 4
  for (std::int64_t i = member; i < here; i += members) top = fmaxf(top, x[start + i * inner.value]);
  top = join_column(top, tops, Max{});
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = member; i < here; i += members)
    sum += static_cast<double>(expf(x[start + i * inner.value] - top));
  sum = join_column(sum, sums, Add{});
  const auto scale = static_cast<float>(1 / sum), shift = static_cast<float>(::log(sum));
  for (std::int64_t i = member; i < here; i += members) {
    const std::int64_t at = start + i * inner.value;
    const float shifted = x[at] - top;
    y[at] = log ? shifted - shift : expf(shifted) * scale;
  }
}

}  // namespace

void softmax(const Context& context, const float* x, float* y, std::int64_t outer, std::int64_t length,
             std::int64_t inner, bool log) {
  if (outer == 0 || length == 0 || inner == 0) return;
  if (inner == 1) {
    int group = 1;
    while (group < most_threads && group * (group < warp_threads ? 1 : held_elems) < length) group *= 2;
    const int threads = std::max(group, block_threads);
    const dim3 grid(blocks_for(outer, threads / group)), block(static_cast<unsigned>(threads));
    const auto kernel =
        length <= static_cast<std::int64_t>(group) * held_elems ? softmax_rows<true> : softmax_rows<false>;
    launch(context, kernel, grid, block, 0, x, y, outer, length, group, log);
    return;
  }
  const std::int64_t columns = outer * inner;
  // Enough columns for every thread of an H200: one each. Fewer: eight threads share one.
  const bool alone = columns >= (1 << 17) || length < 16;
  const dim3 block(alone ? block_threads : block_threads / 8, alone ? 1 : 8);
  launch(context, softmax_columns, dim3(blocks_for(columns, block.x)), block, 0, x, y, columns, length, Radix(inner),
         columns + block_threads < Radix::narrow_end, log);
}

}  // namespace lenslet::cuda
