#include <algorithm>
#include <bit>

#include "base/cuda/launch.h"
#include "base/cuda/warp.cuh"
#include "ops/reduce/top_k_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;
/// Candidates in a block's shared memory: 24 KiB.
constexpr std::int64_t held = 2048;
constexpr std::size_t candidate_bytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);

/// Number of candidates to sort, a power of two: a short line's elements, else the k selected ones.
std::int64_t capacity(const TopKShape& shape) {
  const std::int64_t wanted = shape.length <= held ? shape.length : shape.k;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(wanted, 2))));
}

/// A line of x as keys.
struct Line {
  DType dtype;
  const void* x;
  std::int64_t begin, step;
  bool largest;

  template <typename T>
  __device__ std::uint64_t key_of(std::uint32_t i) const {
    return top_key(static_cast<const T*>(x)[begin + i * step], largest);
  }
  __device__ std::uint64_t key(std::uint32_t i) const {
    switch (dtype) {
      case DType::f32:
        return key_of<float>(i);
      case DType::f64:
        return key_of<double>(i);
      case DType::i8:
        return key_of<std::int8_t>(i);
      case DType::u8:
        return key_of<std::uint8_t>(i);
      case DType::i16:
        return key_of<std::int16_t>(i);
      case DType::u16:
        return key_of<std::uint16_t>(i);
      case DType::i32:
        return key_of<std::int32_t>(i);
      case DType::u32:
        return key_of<std::uint32_t>(i);
      case DType::u64:
        return key_of<std::uint64_t>(i);
      default:  // of TopKTypes, i64
        return key_of<std::int64_t>(i);
    }
  }
};

/// Key and position of each candidate, in shared memory or in the workspace.
struct Candidates {
  std::uint64_t* keys;
  std::uint32_t* positions;

  __device__ void set(std::uint32_t at, std::uint64_t key, std::uint32_t position) const {
    keys[at] = key;
    positions[at] = position;
  }
};

/// The key of the last selected element, by radix select from the top digit, and in `ties` how many of its equals are
/// selected.
__device__ std::uint64_t last_key(const Line& line, std::uint32_t length, int key_bytes, std::uint32_t k,
                                  std::uint32_t& ties) {
  __shared__ unsigned counts[256];
  __shared__ std::uint64_t found;
  __shared__ std::uint32_t left;
  std::uint64_t prefix = 0, mask = 0;
  ties = k;
  for (int shift = 8 * (key_bytes - 1); shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += threads) counts[i] = 0;
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < length; i += threads)
      if (const std::uint64_t key = line.key(i); (key & mask) == prefix) atomicAdd(&counts[key >> shift & 255], 1U);
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint32_t rest = ties;
      unsigned digit = 0;
      while (digit < 255 && counts[digit] < rest) rest -= counts[digit++];
      found = prefix | std::uint64_t{digit} << shift;
      left = rest;
    }
    __syncthreads();
    prefix = found;
    ties = left;
    mask |= std::uint64_t{255} << shift;
  }
  return prefix;
}

/// Makes the line's first k elements candidates, in any order.
__device__ void select(const Line& line, std::uint32_t length, int key_bytes, std::uint32_t k,
                       const Candidates& candidates) {
  __shared__ unsigned below;
  __shared__ unsigned warp_ties[warps];
  std::uint32_t ties = 0;
  const std::uint64_t last = last_key(line, length, key_bytes, k, ties);
  if (threadIdx.x == 0) below = 0;
  __syncthreads();
  // Candidates may stand in any order, since they are sorted; of equals the line's first are taken.
  std::uint32_t equal = 0;
  for (std::uint32_t first = 0; first < length; first += threads) {
    const std::uint32_t i = first + threadIdx.x;
    const std::uint64_t key = i < length ? line.key(i) : ~std::uint64_t{0};
    if (i < length && key < last) candidates.set(atomicAdd(&below, 1U), key, i);
    const bool tie = i < length && key == last;
    const unsigned tied = __ballot_sync(0xffffffffU, tie);
    const unsigned lane = threadIdx.x % warp_threads, warp = threadIdx.x / warp_threads;
    if (lane == 0) warp_ties[warp] = static_cast<unsigned>(__popc(tied));
    __syncthreads();
    std::uint32_t at = equal + static_cast<std::uint32_t>(__popc(tied & ((1U << lane) - 1)));
    for (unsigned w = 0; w < warps; ++w) {
      if (w < warp) at += warp_ties[w];
      equal += warp_ties[w];
    }
    if (tie && at < ties) candidates.set(k - ties + at, key, i);
    __syncthreads();
  }
}

/// Sorts by key, then by position; `count` is a power of two.
__device__ void sort(const Candidates& all, std::uint32_t count) {
  for (std::uint32_t size = 2; size <= count; size *= 2)
    for (std::uint32_t stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (std::uint32_t pair = threadIdx.x; pair < count / 2; pair += threads) {
        const std::uint32_t a = 2 * pair - (pair & (stride - 1)), b = a + stride;
        const std::uint64_t key_a = all.keys[a], key_b = all.keys[b];
        const std::uint32_t position_a = all.positions[a], position_b = all.positions[b];
        const bool later = key_a > key_b || (key_a == key_b && position_a > position_b);
        if (later != ((a & size) == 0)) continue;
        all.set(a, key_b, position_b);
        all.set(b, key_a, position_a);
      }
    }
  __syncthreads();
}

template <typename T>
__device__ void move(const void* from, std::int64_t source, void* to, std::int64_t target) {
  static_cast<T*>(to)[target] = static_cast<const T*>(from)[source];
}

/// One block per line.
__global__ void __launch_bounds__(threads)
    take_top(DType dtype, int bytes, const void* x, void* values, std::int64_t* positions, std::byte* workspace,
             std::uint32_t capacity, TopKShape shape) {
  extern __shared__ std::uint64_t shared[];
  wait_for_previous();
  const std::int64_t outer = blockIdx.x / shape.inner, inner = blockIdx.x - outer * shape.inner;
  const Line line{dtype, x, outer * shape.length * shape.inner + inner, shape.inner, shape.largest};
  Candidates candidates{shared, reinterpret_cast<std::uint32_t*>(shared + capacity)};
  if (workspace != nullptr) {
    auto* mine = reinterpret_cast<std::uint64_t*>(workspace + blockIdx.x * candidate_bytes * capacity);
    candidates = {mine, reinterpret_cast<std::uint32_t*>(mine + capacity)};
  }
  const auto length = static_cast<std::uint32_t>(shape.length), k = static_cast<std::uint32_t>(shape.k);
  const bool all = length <= capacity;
  if (all)
    for (std::uint32_t i = threadIdx.x; i < length; i += threads) candidates.set(i, line.key(i), i);
  else
    select(line, length, bytes, k, candidates);
  for (std::uint32_t i = (all ? length : k) + threadIdx.x; i < capacity; i += threads)
    candidates.set(i, ~std::uint64_t{0}, ~std::uint32_t{0});
  sort(candidates, capacity);
  for (std::uint32_t i = threadIdx.x; i < k; i += threads) {
    const std::int64_t position = candidates.positions[i], source = line.begin + position * line.step;
    const std::int64_t target = (outer * shape.k + i) * shape.inner + inner;
    if (bytes == 1) move<std::uint8_t>(x, source, values, target);
    if (bytes == 2) move<std::uint16_t>(x, source, values, target);
    if (bytes == 4) move<std::uint32_t>(x, source, values, target);
    if (bytes == 8) move<std::uint64_t>(x, source, values, target);
    if (positions != nullptr) positions[target] = position;
  }
}

}  // namespace

std::size_t top_k_workspace_bytes(const TopKShape& shape) {
  const std::int64_t candidates = capacity(shape);
  if (candidates <= held) return 0;
  return static_cast<std::size_t>(shape.outer * shape.inner * candidates) * candidate_bytes;
}

void top_k(const Context& context, DType dtype, const TopKShape& shape, const void* x, void* values,
           std::int64_t* positions, std::byte* workspace) {
  const std::int64_t lines = shape.outer * shape.inner, candidates = capacity(shape);
  if (lines == 0 || shape.k == 0) return;
  const bool shared = candidates <= held;
  launch(context, take_top, blocks_for(lines, 1), threads,
         shared ? candidate_bytes * static_cast<std::size_t>(candidates) : 0, dtype,
         static_cast<int>(dtype_bytes(dtype)), x, values, positions, shared ? nullptr : workspace,
         static_cast<std::uint32_t>(candidates), shape);
}

}  // namespace lenslet::cuda
