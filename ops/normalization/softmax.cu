#include "ops/normalization/softmax_cuda.h"

#include <algorithm>
#include <limits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "ops/core/radix.cuh"
#include "ops/reduce/staged_rows.cuh"

namespace lenslet::cuda {

namespace {

constexpr int block_threads = 256;
constexpr int long_threads = 1024;
/// What a thread keeps in registers: of a row so many float4 or floats, of a column so many elements.
constexpr int held_packs = 8, held_lines = 32;
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

template <int pack>
struct alignas(sizeof(float) * pack) Pack {
  float at[pack];
};

/// Rows of neighbouring elements, `group` threads each; a multiple of `pack` long, and at most held_packs * group
/// packs: read once, all loads of a thread in flight at once. A thread writes only what it alone has read, so y may be
/// x.
template <int pack>
__global__ void __launch_bounds__(block_threads, 3)
    softmax_rows(const float* x, float* y, std::int64_t rows, int length, int group, bool log) {
  wait_for_previous();
  __shared__ float tops[block_threads / warp_threads], sums[block_threads / warp_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int member = thread & (group - 1), rows_per_block = block_threads / group;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + thread / group;
  const int packs = row < rows ? length / pack : 0;  // threads without a row still meet the others
  const auto* from = reinterpret_cast<const Pack<pack>*>(x + row * length);
  auto* to = reinterpret_cast<Pack<pack>*>(y + row * length);
  Pack<pack> values[held_packs];
  float top = least;
#pragma unroll
  for (int i = 0; i < held_packs; ++i) {
#pragma unroll
    for (int k = 0; k < pack; ++k) values[i].at[k] = least;
    if (member + i * group < packs) values[i] = from[member + i * group];
  }
#pragma unroll
  for (int i = 0; i < held_packs; ++i)
#pragma unroll
    for (int k = 0; k < pack; ++k) top = fmaxf(top, values[i].at[k]);
  top = join_row(top, group, tops, Max{});
  float sum = 0;
#pragma unroll
  for (int i = 0; i < held_packs; ++i) {
    const bool inside = member + i * group < packs;
    float partial = 0;
#pragma unroll
    for (int k = 0; k < pack; ++k) {
      const float shifted = values[i].at[k] - top, power = expf(shifted);
      values[i].at[k] = log ? shifted : power;
      partial += inside ? power : 0.0f;
    }
    sum += partial;
  }
  sum = join_row(sum, group, sums, Add{});
  const float scale = 1 / sum, shift = logf(sum);
#pragma unroll
  for (int i = 0; i < held_packs; ++i) {
#pragma unroll
    for (int k = 0; k < pack; ++k) values[i].at[k] = log ? values[i].at[k] - shift : values[i].at[k] * scale;
    if (member + i * group < packs) to[member + i * group] = values[i];
  }
}

/// Rows too long for that, three times read; a block a row.
__global__ void __launch_bounds__(long_threads)
    softmax_long_rows(const float* x, float* y, std::int64_t length, bool log) {
  wait_for_previous();
  __shared__ float tops[long_threads / warp_threads];
  __shared__ double sums[long_threads / warp_threads];
  const int member = static_cast<int>(threadIdx.x);
  const float* from = x + static_cast<std::int64_t>(blockIdx.x) * length;
  float* to = y + static_cast<std::int64_t>(blockIdx.x) * length;
  float top = least;
#pragma unroll 8
  for (std::int64_t i = member; i < length; i += long_threads) top = fmaxf(top, from[i]);
  top = join_row(top, long_threads, tops, Max{});
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = member; i < length; i += long_threads) sum += static_cast<double>(expf(from[i] - top));
  sum = join_row(sum, long_threads, sums, Add{});
  const auto scale = static_cast<float>(1 / sum), shift = static_cast<float>(::log(sum));
  for (std::int64_t i = member; i < length; i += long_threads) {
    const float shifted = from[i] - top;
    to[i] = log ? shifted - shift : expf(shifted) * scale;
  }
}

/// Rows that stage_rows() wants staged. A block writes only what it alone has read, so y may be x.
__global__ void __launch_bounds__(staged_rows, 9)
    softmax_staged_rows(const float* x, float* y, std::int64_t rows, int length, bool log) {
  wait_for_previous();
  alignas(16) __shared__ float shared[staged_rows * staged_length];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * staged_rows;
  const int here = rows - first < staged_rows ? static_cast<int>(rows - first) : staged_rows;
  stage(x + first * length, shared, here * length);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < here) {
    float* row = shared + thread * length;
    float top = least;
    for (int i = 0; i < length; ++i) top = fmaxf(top, row[i]);
    double sum = 0;
    for (int i = 0; i < length; ++i) {
      const float shifted = row[i] - top, power = expf(shifted);
      row[i] = log ? shifted : power;
      sum += static_cast<double>(power);
    }
    const float scale = 1 / static_cast<float>(sum), shift = logf(static_cast<float>(sum));
    for (int i = 0; i < length; ++i) row[i] = log ? row[i] - shift : row[i] * scale;
  }
  __syncthreads();
  unstage(shared, y + first * length, here * length);
}

/// Short columns, a thread each, read once: elements `inner` apart, at most held_lines of them.
__global__ void __launch_bounds__(block_threads, 3)
    softmax_short_columns(const float* x, float* y, std::int64_t columns, int length, Radix inner, bool narrow,
                          bool log) {
  wait_for_previous();
  std::int64_t outer = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (outer >= columns) return;
  const std::int64_t first = take_digit(outer, inner, narrow), start = outer * length * inner.value + first;
  const float* from = x + start;
  float* to = y + start;
  float values[held_lines];
#pragma unroll
  for (int i = 0; i < held_lines; ++i) {
    values[i] = least;
    if (i < length) values[i] = from[i * inner.value];
  }
  float top = least;
#pragma unroll
  for (int i = 0; i < held_lines; ++i) top = fmaxf(top, values[i]);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < held_lines; ++i) {
    if (i >= length) continue;
    const float shifted = values[i] - top, power = expf(shifted);
    values[i] = log ? shifted : power;
    sum += static_cast<double>(power);
  }
  const float scale = 1 / static_cast<float>(sum), shift = logf(static_cast<float>(sum));
#pragma unroll
  for (int i = 0; i < held_lines; ++i)
    if (i < length) to[i * inner.value] = log ? values[i] - shift : values[i] * scale;
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
  const bool quads = length % 4 == 0 && quad_aligned(x, y);
  const std::int64_t packs = quads ? length / 4 : length;
  if (inner == 1 && stage_rows(outer, length) && quad_aligned(x, y))
    return launch(context, softmax_staged_rows, dim3(blocks_for(outer, staged_rows)), dim3(staged_rows), 0, x, y, outer,
                  static_cast<int>(length), log);
  if (inner == 1 && packs > held_packs * block_threads)
    return launch(context, softmax_long_rows, dim3(blocks_for(outer, 1)), dim3(long_threads), 0, x, y, length, log);
  if (inner == 1) {
    // Few rows: more threads, since the time is then that of one.
    constexpr std::int64_t threads_wanted = 1 << 15;
    int group = 1;
    while (group < block_threads && group < packs &&
           (group < warp_threads || group * held_packs < packs || outer * group < threads_wanted))
      group *= 2;
    launch(context, quads ? softmax_rows<4> : softmax_rows<1>, dim3(blocks_for(outer, block_threads / group)),
           dim3(block_threads), 0, x, y, outer, static_cast<int>(length), group, log);
    return;
  }
  const std::int64_t columns = outer * inner;
  const bool narrow = columns + block_threads < Radix::narrow_end;
  if (length <= held_lines)
    return launch(context, softmax_short_columns, dim3(blocks_for(columns, block_threads)), dim3(block_threads), 0, x,
                  y, columns, static_cast<int>(length), Radix(inner), narrow, log);
  // Enough columns for every thread of an H200: one each. Fewer: eight threads share one.
  const bool alone = columns >= (1 << 17);
  const dim3 block(alone ? block_threads : block_threads / 8, alone ? 1 : 8);
  launch(context, softmax_columns, dim3(blocks_for(columns, block.x)), block, 0, x, y, columns, length, Radix(inner),
         narrow, log);
}

}  // namespace lenslet::cuda
