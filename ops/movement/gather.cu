#include "ops/movement/gather_cuda.h"

#include <limits>

#include "base/cuda/index_divider.h"
#include "base/cuda/launch.h"
#include "ops/movement/access.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int unroll = 4;

/// A GatherShape in items: elements, or as much of a row as one access moves.
template <typename Index>
struct GatherLoops {
  DividerOf<Index> count, inner;
  std::int64_t dim;
  Index items;
};

template <typename T, typename Index>
__global__ void __launch_bounds__(threads) gather_items(const T* from, const void* indices, bool wide_indices, T* to,
                                                        const __grid_constant__ GatherLoops<Index> loops) {
  wait_for_previous();
  const Index first = static_cast<Index>(blockIdx.x) * (threads * unroll) + threadIdx.x;
  T values[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Index item = first + static_cast<Index>(u * threads);
    if (item >= loops.items) continue;
    const Index row = loops.inner.divide(item), outer = loops.count.divide(row);
    const Index j = row - outer * loops.count.divisor();
    std::int64_t index = wide_indices ? static_cast<const std::int64_t*>(indices)[j]
                                      : std::int64_t{static_cast<const std::int32_t*>(indices)[j]};
    if (index < 0) index += loops.dim;
    const std::int64_t inner = loops.inner.divisor();
    values[u] = from[(outer * loops.dim + index) * inner + (item - row * inner)];
  }
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Index item = first + static_cast<Index>(u * threads);
    if (item < loops.items) to[item] = values[u];
  }
}

template <typename T, typename Index>
void launch_gather(const Context& context, const GatherShape& shape, const void* from, const void* indices,
                   bool wide_indices, void* to) {
  const std::int64_t items = shape.outer * shape.count * shape.inner;
  const GatherLoops<Index> loops{DividerOf<Index>(static_cast<Index>(shape.count)),
                                 DividerOf<Index>(static_cast<Index>(shape.inner)), shape.dim,
                                 static_cast<Index>(items)};
  launch(context, gather_items<T, Index>, blocks_for(items, threads * unroll), threads, 0, static_cast<const T*>(from),
         indices, wide_indices, static_cast<T*>(to), loops);
}

template <typename T>
void gather_as(const Context& context, const GatherShape& shape, const void* from, const void* indices,
               bool wide_indices, void* to) {
  if (shape.outer * shape.count * shape.inner < std::numeric_limits<std::int32_t>::max() - threads * unroll)
    launch_gather<T, std::uint32_t>(context, shape, from, indices, wide_indices, to);
  else
    launch_gather<T, std::uint64_t>(context, shape, from, indices, wide_indices, to);
}

}  // namespace

void gather(const Context& context, std::size_t element_bytes, const GatherShape& shape, const void* from,
            const void* indices, bool wide_indices, void* to) {
  if (shape.outer == 0 || shape.count == 0 || shape.inner == 0) return;
  const std::size_t bytes = access_bytes(shape.inner, element_bytes, from, to);
  GatherShape in_items = shape;
  in_items.inner = shape.inner * static_cast<std::int64_t>(element_bytes) / static_cast<std::int64_t>(bytes);
  dispatch_access(bytes, [&]<typename T>(std::type_identity<T>) {
    gather_as<T>(context, in_items, from, indices, wide_indices, to);
  });
}

}  // namespace lenslet::cuda
