#include "ops/normalization/softmax_kernels.h"

#include <limits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/radix.cuh"
#include "ops/reduce/rows.cuh"

namespace lenslet::cuda {

namespace {

constexpr int block_threads = 256;
constexpr int long_threads = 1024;
constexpr int held_lines = 32;  ///< elements of a column that a thread keeps in registers
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

/// The power of an element of a row with maximum `top`. x becomes what is kept: the power, or for the logarithm the
/// distance from `top`.
__device__ float take_power(float& x, float top, bool log) {
  const float shifted = x - top, power = expf(shifted);
  x = log ? shifted : power;
  return power;
}

/// Turns kept values into results, given the sum of a row's powers.
struct Last {
  bool log;
  float scale, shift;
  __device__ Last(bool is_log, float sum) : log(is_log), scale(1 / sum), shift(logf(sum)) {}
  __device__ Last(bool is_log, double sum)
      : log(is_log), scale(static_cast<float>(1 / sum)), shift(static_cast<float>(::log(sum))) {}
  __device__ float operator()(float kept) const { return log ? kept - shift : kept * scale; }
};

/// A Map of map_held_rows.
struct SoftmaxHeld {
  static constexpr float filler = least;
  bool log;

  template <int pack>
  __device__ void operator()(Floats<pack> (&values)[held_packs], const RowMember& here) const {
    __shared__ float tops[held_threads / warp_threads], sums[held_threads / warp_threads];
    float top = least;
#pragma unroll
    for (int i = 0; i < held_packs; ++i)
#pragma unroll
      for (int k = 0; k < pack; ++k) top = fmaxf(top, values[i].at[k]);
    top = here.join(top, tops, Max{});
    float sum = 0;
#pragma unroll
    for (int i = 0; i < held_packs; ++i) {
      float partial = 0;
#pragma unroll
      for (int k = 0; k < pack; ++k) {
        const float power = take_power(values[i].at[k], top, log);
        partial += here.inside(i) ? power : 0.0f;
      }
      sum += partial;
    }
    const Last last(log, here.join(sum, sums, Add{}));
#pragma unroll
    for (int i = 0; i < held_packs; ++i)
#pragma unroll
      for (int k = 0; k < pack; ++k) values[i].at[k] = last(values[i].at[k]);
  }
};

/// A row of take_staged_rows.
struct SoftmaxStaged {
  bool log;
  __device__ void operator()(float* row, int length) const {
    float top = least;
    for (int i = 0; i < length; ++i) top = fmaxf(top, row[i]);
    double sum = 0;
    for (int i = 0; i < length; ++i) sum += static_cast<double>(take_power(row[i], top, log));
    const Last last(log, static_cast<float>(sum));
    for (int i = 0; i < length; ++i) row[i] = last(row[i]);
  }
};

/// Lines too long for registers, read three times: a thread takes elements x[at(i)] for i from `member` to `length` in
/// steps of `members`; join(value, how) reduces over all threads of the row or column. Each thread writes only what it
/// alone reads, so y may be x.
template <int top_unroll, typename T, typename At, typename Join>
__device__ void softmax_streamed(const T* x, T* y, std::int64_t member, std::int64_t length, std::int64_t members,
                                 bool log, const At& at, const Join& join) {
  float top = least;
#pragma unroll top_unroll
  for (std::int64_t i = member; i < length; i += members) top = fmaxf(top, loaded(x[at(i)]));
  top = join(top, Max{});
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = member; i < length; i += members) sum += static_cast<double>(expf(loaded(x[at(i)]) - top));
  const Last last(log, join(sum, Add{}));
  for (std::int64_t i = member; i < length; i += members) {
    const float shifted = loaded(x[at(i)]) - top;
    y[at(i)] = as_stored<T>(last(log ? shifted : expf(shifted)));
  }
}

/// One block per row.
template <typename T>
__global__ void __launch_bounds__(long_threads) softmax_long_rows(const T* x, T* y, std::int64_t length, bool log) {
  wait_for_previous();
  let_next_start();
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * length;
  softmax_streamed<8>(
      x + start, y + start, threadIdx.x, length, long_threads, log, [](std::int64_t i) { return i; },
      [&](auto value, auto how) {
        __shared__ decltype(value) shared[long_threads / warp_threads];
        return join_row(value, long_threads, shared, how);
      });
}

/// Short columns, one per thread, read once: at most held_lines elements, `inner` apart.
template <typename T>
__global__ void __launch_bounds__(block_threads, 3)
    softmax_short_columns(const T* x, T* y, std::int64_t columns, int length, Radix inner, bool narrow, bool log) {
  wait_for_previous();
  let_next_start();
  std::int64_t outer = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
  if (outer >= columns) return;
  const std::int64_t first = take_digit(outer, inner, narrow), start = outer * length * inner.value + first;
  const T* from = x + start;
  T* to = y + start;
  float values[held_lines];
#pragma unroll
  for (int i = 0; i < held_lines; ++i) {
    values[i] = least;
    if (i < length) values[i] = loaded(from[i * inner.value]);
  }
  float top = least;
#pragma unroll
  for (int i = 0; i < held_lines; ++i) top = fmaxf(top, values[i]);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < held_lines; ++i)
    if (i < length) sum += static_cast<double>(take_power(values[i], top, log));
  const Last last(log, static_cast<float>(sum));
#pragma unroll
  for (int i = 0; i < held_lines; ++i)
    if (i < length) to[i * inner.value] = as_stored<T>(last(values[i]));
}

/// Reduces `value` over the threads of one column: equal threadIdx.x.
template <typename T, typename Join>
__device__ T join_column(T value, T* shared, Join join) {
  if (blockDim.y == 1) return value;
  shared[threadIdx.y * blockDim.x + threadIdx.x] = value;
  __syncthreads();
  value = shared[threadIdx.x];
  for (unsigned i = 1; i < blockDim.y; ++i) value = join(value, shared[i * blockDim.x + threadIdx.x]);
  return value;
}

/// A column of elements `inner` apart per threadIdx.x; its threads take lines in turn.
template <typename T>
__global__ void __launch_bounds__(block_threads)
    softmax_columns(const T* x, T* y, std::int64_t columns, std::int64_t length, Radix inner, bool narrow, bool log) {
  wait_for_previous();
  let_next_start();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::int64_t outer = column;
  const std::int64_t first = take_digit(outer, inner, narrow);
  const std::int64_t start = outer * length * inner.value + first;
  softmax_streamed<4>(
      x + start, y + start, threadIdx.y, column < columns ? length : 0, blockDim.y, log,
      [&](std::int64_t i) { return i * inner.value; },
      [&](auto value, auto how) {
        __shared__ decltype(value) shared[block_threads];
        return join_column(value, shared, how);
      });
}

template <typename T>
void softmax_of(const Context& context, const T* x, T* y, std::int64_t outer, std::int64_t length, std::int64_t inner,
                bool log) {
  if (inner == 1) {
    if (quad_aligned(y) && take_if_staged(context, x, y, outer, length, SoftmaxStaged{log})) return;
    if (map_if_held(context, x, y, outer, length, SoftmaxHeld{log})) return;
    return launch(context, softmax_long_rows<T>, dim3(blocks_for(outer, 1)), dim3(long_threads), 0, x, y, length, log);
  }
  const std::int64_t columns = outer * inner;
  const bool narrow = columns + block_threads < Radix::narrow_end;
  if (length <= held_lines)
    return launch(context, softmax_short_columns<T>, dim3(blocks_for(columns, block_threads)), dim3(block_threads), 0,
                  x, y, columns, static_cast<int>(length), Radix(inner), narrow, log);
  // One column per thread if there are enough for an H200, else eight threads per column.
  const bool alone = columns >= (1 << 17);
  const dim3 block(alone ? block_threads : block_threads / 8, alone ? 1 : 8);
  launch(context, softmax_columns<T>, dim3(blocks_for(columns, block.x)), block, 0, x, y, columns, length, Radix(inner),
         narrow, log);
}

}  // namespace

void softmax(const Context& context, DType dtype, const void* x, void* y, std::int64_t outer, std::int64_t length,
             std::int64_t inner, bool log) {
  if (outer == 0 || length == 0 || inner == 0) return;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    softmax_of(context, static_cast<const T*>(x), static_cast<T*>(y), outer, length, inner, log);
  });
}

}  // namespace lenslet::cuda
