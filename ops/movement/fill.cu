#include "ops/movement/fill_cuda.h"

#include <cassert>
#include <type_traits>

#include "base/cuda/launch.h"
#include "ops/movement/access.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// Fills `bytes` bytes: `vectors` whole vectors, and the last thread writes the remaining bytes.
__global__ void __launch_bounds__(threads)
    fill_vectors(uint4* to, uint4 pattern, std::int64_t vectors, int tail_bytes) {
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < vectors) to[i] = pattern;
  if (i == vectors)
    for (int b = 0; b < tail_bytes; ++b) {
      const std::uint32_t word = b < 4 ? pattern.x : b < 8 ? pattern.y : b < 12 ? pattern.z : pattern.w;
      reinterpret_cast<std::uint8_t*>(to + vectors)[b] = static_cast<std::uint8_t>(word >> b % 4 * 8);
    }
}

struct Values {
  int count;
  std::int64_t values[Shape::max_rank];
};

__global__ void store_values(std::int64_t* to, const __grid_constant__ Values all) {
  wait_for_previous();
  if (static_cast<int>(threadIdx.x) < all.count) to[threadIdx.x] = all.values[threadIdx.x];
}

template <typename T>
__global__ void __launch_bounds__(threads) fill_steps(T* to, T start, T delta, std::int64_t count) {
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= count) return;
  if constexpr (std::is_integral_v<T>)
    to[i] = static_cast<T>(static_cast<std::uint64_t>(start) +
                           static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(delta));
  else  // two roundings, as written: no fma
    to[i] = static_cast<T>(
        __dadd_rn(static_cast<double>(start), __dmul_rn(static_cast<double>(i), static_cast<double>(delta))));
}

}  // namespace

void fill(const Context& context, std::size_t element_bytes, std::int64_t count, std::uint64_t bits, void* to) {
  if (count == 0) return;
  const std::int64_t all_bytes = count * static_cast<std::int64_t>(element_bytes);
  launch(context, fill_vectors, blocks_for(all_bytes / 16 + 1, threads), threads, 0, static_cast<uint4*>(to),
         repeated(bits, element_bytes), all_bytes / 16, static_cast<int>(all_bytes % 16));
}

void store(const Context& context, std::span<const std::int64_t> values, std::int64_t* to) {
  assert(values.size() <= Shape::max_rank);
  if (values.empty()) return;
  Values all{};
  for (const std::int64_t value : values) all.values[all.count++] = value;
  launch(context, store_values, 1, Shape::max_rank, 0, to, all);
}

template <typename T>
void fill_range(const Context& context, std::int64_t count, T start, T delta, T* to) {
  if (count > 0) launch(context, fill_steps<T>, blocks_for(count, threads), threads, 0, to, start, delta, count);
}

template void fill_range(const Context&, std::int64_t, float, float, float*);
template void fill_range(const Context&, std::int64_t, double, double, double*);
template void fill_range(const Context&, std::int64_t, std::int32_t, std::int32_t, std::int32_t*);
template void fill_range(const Context&, std::int64_t, std::int64_t, std::int64_t, std::int64_t*);

}  // namespace lenslet::cuda
