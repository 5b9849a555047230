#pragma once
// Kernels over contiguous rows with a few threads per row: for folds and maps of rows. Rows are floats, or halves that
// are widened when loaded and rounded when stored.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"

namespace lenslet::cuda {

template <int pack, typename T = float>
struct alignas(sizeof(T) * pack) Floats {
  T at[pack];
};

/// A thread's iterations `step` apart, from `first` to below `end`, with `unroll` loads in flight: use(value, i) in
/// order; `filler` completes the last unrolled iteration.
template <int unroll, int rounds = 1, typename Index, typename T, typename Load, typename Use>
__device__ void take_turns(Index first, Index end, int step, const T& filler, const Load& load, const Use& use) {
#pragma unroll rounds
  for (Index i = first; i < end; i += unroll * step) {
    T values[unroll];
#pragma unroll
    for (int j = 0; j < unroll; ++j) {
      values[j] = filler;
      if (i + j * step < end) values[j] = load(i + j * step);
    }
#pragma unroll
    for (int j = 0; j < unroll; ++j) use(values[j], i + j * step);
  }
}

/// `value` reduced over the `group` adjacent threads of a row: a power of two, at most blockDim.x. All threads of the
/// block take part. `shared` has one element per warp.
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

// Held rows: read once into registers, with all loads of a thread in flight at once.

inline constexpr int held_threads = 256;
/// A thread's registers for a row, in fours of elements or single ones.
inline constexpr int held_packs = 8;
/// True if rows of this length, 16-byte aligned, can be held.
constexpr bool fits_held(std::int64_t length) {
  return (length % 4 == 0 ? length / 4 : length) <= held_packs * held_threads;
}

/// A thread's position among the `group` adjacent ones of a row. All threads of a block have one, because even those
/// without a row take part in barriers.
struct RowMember {
  int member, group;
  std::int64_t row;  ///< -1: there is none
  int packs;         ///< of the row; 0: there is none

  /// The row's pack that is the thread's i-th.
  __device__ int at(int i) const { return member + i * group; }
  __device__ bool inside(int i) const { return at(i) < packs; }
  template <typename T, typename Join>
  __device__ T join(T value, T* shared, Join how) const {
    return join_row(value, group, shared, how);
  }
};

/// y = map(x) for rows that are multiples of `pack` and at most held_packs * group packs long. A Map has `filler`, for
/// packs out of range, and modifies the thread's packs in place. A thread writes only what it alone has read, so y may
/// be x.
template <int pack, typename T, typename Map>
__global__ void __launch_bounds__(held_threads, 3)
    map_held_rows(const T* x, T* y, std::int64_t rows, int length, int group, const Map map) {
  wait_for_previous();
  let_next_start();
  const int thread = static_cast<int>(threadIdx.x);
  const int member = thread & (group - 1), rows_per_block = held_threads / group;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_per_block + thread / group;
  const RowMember here{member, group, row < rows ? row : -1, row < rows ? length / pack : 0};
  const auto* from = reinterpret_cast<const Floats<pack, T>*>(x + row * length);
  auto* to = reinterpret_cast<Floats<pack, T>*>(y + row * length);
  Floats<pack, T> stored[held_packs];
#pragma unroll
  for (int i = 0; i < held_packs; ++i) {
#pragma unroll
    for (int k = 0; k < pack; ++k) stored[i].at[k] = as_stored<T>(float{Map::filler});
    if (here.inside(i)) stored[i] = from[here.at(i)];
  }
  Floats<pack> values[held_packs];
#pragma unroll
  for (int i = 0; i < held_packs; ++i)
#pragma unroll
    for (int k = 0; k < pack; ++k) values[i].at[k] = loaded(stored[i].at[k]);
  map(values, here);
#pragma unroll
  for (int i = 0; i < held_packs; ++i) {
    if (!here.inside(i)) continue;
    Floats<pack, T> result;
#pragma unroll
    for (int k = 0; k < pack; ++k) result.at[k] = as_stored<T>(values[i].at[k]);
    to[here.at(i)] = result;
  }
}

/// Queues map_held_rows; false if the rows are too long.
template <typename T, typename Map>
bool map_if_held(const Context& context, const T* x, T* y, std::int64_t rows, std::int64_t length, const Map& map) {
  const bool quads = length % 4 == 0 && quad_aligned(x, y);
  const std::int64_t packs = quads ? length / 4 : length;
  if (packs > held_packs * held_threads) return false;
  // With few rows more threads each, since one row's time is then the total. Four halves are 8 bytes, of which a thread
  // needs several in flight: 8 threads, two sectors, suffice for short rows.
  constexpr std::int64_t threads_wanted = 1 << 15;
  const int least = is_half<T> && quads ? 8 : warp_threads;
  int group = 1;
  while (group < held_threads && group < packs &&
         (group < least || group * held_packs < packs || rows * group < threads_wanted))
    group *= 2;
  launch(context, quads ? map_held_rows<4, T, Map> : map_held_rows<1, T, Map>,
         dim3(blocks_for(rows, held_threads / group)), dim3(held_threads), 0, x, y, rows, static_cast<int>(length),
         group, map);
  return true;
}

// Staged rows: short ones, through shared memory. The block copies its rows with 16-byte accesses, then each thread has
// one row. Direct reads would cost a transaction per element.

/// Rows per block, one per thread.
inline constexpr int staged_rows = 128;
/// 7x7 pixels; a block's rows are 25 KB, so nine blocks fit an H200's multiprocessor.
inline constexpr int staged_length = 49;

/// 16 bytes of T.
template <typename T>
using StagedPack = std::conditional_t<is_half<T>, EightHalves<T>, float4>;

/// shared[count] = x[count], 16-byte aligned; by all threads of the block, which need a barrier before reading.
template <typename T>
__device__ void stage(const T* x, float* shared, int count) {
  using Pack = StagedPack<T>;
  constexpr int pack = sizeof(Pack) / sizeof(T);
  const auto* from = reinterpret_cast<const Pack*>(x);
  auto* to = reinterpret_cast<Loaded<Pack>*>(shared);
  const int thread = static_cast<int>(threadIdx.x), packs = count / pack;
  take_turns<32 / pack>(
      thread, packs, staged_rows, Pack{}, [&](int i) { return from[i]; },
      [&](const Pack& value, int i) {
        if (i < packs) to[i] = loaded(value);
      });
  if (thread < count % pack) shared[pack * packs + thread] = loaded(x[pack * packs + thread]);
}

/// y[count] = shared[count], likewise.
template <typename T>
__device__ void unstage(const float* shared, T* y, int count) {
  using Pack = StagedPack<T>;
  constexpr int pack = sizeof(Pack) / sizeof(T);
  const auto* from = reinterpret_cast<const Loaded<Pack>*>(shared);
  auto* to = reinterpret_cast<Pack*>(y);
  const int thread = static_cast<int>(threadIdx.x), packs = count / pack;
#pragma unroll 4
  for (int i = thread; i < packs; i += staged_rows) to[i] = as_stored<Pack>(from[i]);
  if (thread < count % pack) y[pack * packs + thread] = as_stored<T>(shared[pack * packs + thread]);
}

/// Calls `take` with a row in shared memory and its length. Its results go to y [rows]; if it returns void, the
/// modified rows go to y [rows][length], which may be x: a block writes only what it alone has read.
template <typename T, typename Take, typename Out>
__global__ void __launch_bounds__(staged_rows, 9)
    take_staged_rows(const T* x, Out* y, std::int64_t rows, int length, const Take take) {
  wait_for_previous();
  let_next_start();
  alignas(16) __shared__ float shared[staged_rows * staged_length];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * staged_rows;
  const int here = rows - first < staged_rows ? static_cast<int>(rows - first) : staged_rows;
  stage(x + first * length, shared, here * length);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (std::is_void_v<decltype(take(shared, length))>) {
    if (thread < here) take(shared + thread * length, length);
    __syncthreads();
    unstage(shared, y + first * length, here * length);
  } else {
    if (thread < here) y[first + thread] = take(shared + thread * length, length);
  }
}

/// Queues take_staged_rows; false if staging does not pay. Rows of whole float4 need none and would have bank
/// conflicts; others have two-way conflicts at worst.
template <typename T, typename Take, typename Out>
bool take_if_staged(const Context& context, const T* x, Out* y, std::int64_t rows, std::int64_t length,
                    const Take& take) {
  constexpr std::int64_t least_rows = 1 << 16;  // fewer leave multiprocessors idle
  if (length % 4 == 0 || length > staged_length || rows < least_rows || !quad_aligned(x)) return false;
  launch(context, take_staged_rows<T, Take, Out>, dim3(blocks_for(rows, staged_rows)), dim3(staged_rows), 0, x, y, rows,
         static_cast<int>(length), take);
  return true;
}

}  // namespace lenslet::cuda
