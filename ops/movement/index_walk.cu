#include <cassert>
#include <limits>
#include <type_traits>

#include "base/cuda/index_divider.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "ops/movement/access.cuh"
#include "ops/movement/index_walk_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;
constexpr int unroll = 4;

/// An IndexWalk in items: elements, or the units in which slices are accessed.
template <typename Index>
struct WalkLoops {
  const void* indices;
  bool wide_indices;
  int* fault;
  int rank, depth;
  DividerOf<Index> inner, dims[Shape::max_rank];
  std::int64_t from[Shape::max_rank] = {}, to[Shape::max_rank] = {};               // steps of the loops
  std::int64_t axis_dims[Shape::max_rank] = {}, axis_steps[Shape::max_rank] = {};  // of each index of a tuple
  Index items;

  WalkLoops(const Context& context, const IndexWalk& walk, const void* all, bool wide)
      : indices(all),
        wide_indices(wide),
        fault(context.fault),
        rank(walk.loops.rank()),
        depth(walk.depth),
        inner(static_cast<Index>(walk.inner)),
        items(static_cast<Index>(walk.loops.count() * walk.inner)) {
    assert(rank <= Shape::max_rank);
    for (int i = 0; i < rank; ++i) {
      dims[i] = DividerOf<Index>(static_cast<Index>(walk.loops[i].dim));
      from[i] = walk.loops[i].from;
      to[i] = walk.loops[i].to;
    }
    for (int i = 0; i < depth; ++i) {
      axis_dims[i] = walk.axes[static_cast<std::size_t>(i)].dim;
      axis_steps[i] = walk.axes[static_cast<std::size_t>(i)].step;
    }
  }

  struct Place {
    std::int64_t from = 0, tuple = 0;
  };
  /// The offsets of row `row` of the loops, without indices.
  __device__ Place start(Index row) const {
    Place place;
    for (int i = rank - 1; i >= 0; --i) {
      // The outermost digit is the remaining quotient.
      const Index outer = i > 0 ? dims[i].divide(row) : 0;
      const auto digit = static_cast<std::int64_t>(i > 0 ? row - outer * dims[i].divisor() : row);
      place.from += digit * from[i];
      place.tuple += digit * to[i];
      row = outer;
    }
    return place;
  }
  /// The offset that a tuple's indices add; negative if one is out of range. Then call report().
  __device__ std::int64_t named(std::int64_t tuple) const {
    std::int64_t at = 0;
    for (int i = 0; i < depth; ++i) {
      const std::int64_t j = tuple * depth + i;
      const std::int64_t index = wide_indices ? static_cast<const std::int64_t*>(indices)[j]
                                              : std::int64_t{static_cast<const std::int32_t*>(indices)[j]};
      const std::int64_t from_front = index < 0 ? index + axis_dims[i] : index;
      if (fault != nullptr && (from_front < 0 || from_front >= axis_dims[i])) return -1;
      at += from_front * axis_steps[i];
    }
    return at;
  }
  /// Reports an index out of range. Separate from named(), because no load moves ahead of a store.
  __device__ void report() const { *fault = 1; }
};

template <typename T, typename Index>
__global__ void __launch_bounds__(threads)
    gather_items(const T* from, T* to, const __grid_constant__ WalkLoops<Index> loops) {
  wait_for_previous();
  const Index first = static_cast<Index>(blockIdx.x) * (threads * unroll) + threadIdx.x;
  std::int64_t places[unroll];
  bool right = true;
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Index item = min(first + static_cast<Index>(u * threads), loops.items - 1);
    const Index row = loops.inner.divide(item);
    const auto place = loops.start(row);
    const std::int64_t named = loops.named(place.tuple);
    right = right && named >= 0;
    places[u] = named < 0 ? 0 : place.from + named + (item - row * loops.inner.divisor());
  }
  if (!right) return loops.report();
  T values[unroll];
#pragma unroll
  for (int u = 0; u < unroll; ++u) values[u] = from[places[u]];
#pragma unroll
  for (int u = 0; u < unroll; ++u) {
    const Index item = first + static_cast<Index>(u * threads);
    if (item < loops.items) to[item] = values[u];
  }
}

/// A thread's unit of access.
template <typename T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Quad {
  T items[4];
};

/// The same for single elements with one index each: four adjacent ones per thread, whose loop position is computed
/// once.
template <typename T, typename Given>
__global__ void __launch_bounds__(threads)
    gather_quads(const T* from, T* to, const __grid_constant__ WalkLoops<std::uint32_t> loops) {
  wait_for_previous();
  const std::uint32_t item = 4 * (blockIdx.x * threads + threadIdx.x);
  if (item >= loops.items) return;
  const auto place = loops.start(item);
  const auto given = *reinterpret_cast<const Quad<Given>*>(static_cast<const Given*>(loops.indices) + place.tuple);
  std::int64_t places[4];
  bool right = true;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::int64_t index = given.items[k], from_front = index < 0 ? index + loops.axis_dims[0] : index;
    right = right && from_front >= 0 && from_front < loops.axis_dims[0];
    places[k] = place.from + k * loops.from[loops.rank - 1] + from_front * loops.axis_steps[0];
  }
  if (!right && loops.fault != nullptr) return loops.report();
  Quad<T> values;
#pragma unroll
  for (int k = 0; k < 4; ++k) values.items[k] = from[places[k]];
  *reinterpret_cast<Quad<T>*>(to + item) = values;
}

/// True if four adjacent elements have four adjacent indices.
bool in_quads(const IndexWalk& walk) {
  const int last = walk.loops.rank() - 1;
  if (walk.inner != 1 || walk.depth != 1 || last < 0 || walk.loops[last].to != 1 || walk.loops[last].dim % 4 != 0)
    return false;
  for (int i = 0; i < last; ++i)
    if (walk.loops[i].to % 4 != 0) return false;
  return true;
}

template <typename T, typename Index>
void launch_gather(const Context& context, const IndexWalk& walk, const void* from, const void* indices,
                   bool wide_indices, void* to) {
  if constexpr (std::is_same_v<Index, std::uint32_t> && sizeof(T) <= 8)
    if (in_quads(walk) && quad_aligned(indices, to)) {
      const auto kernel = wide_indices ? gather_quads<T, std::int64_t> : gather_quads<T, std::int32_t>;
      return launch(context, kernel, blocks_for(walk.loops.count() / 4, threads), threads, 0,
                    static_cast<const T*>(from), static_cast<T*>(to),
                    WalkLoops<Index>(context, walk, indices, wide_indices));
    }
  launch(context, gather_items<T, Index>, blocks_for(walk.loops.count() * walk.inner, threads * unroll), threads, 0,
         static_cast<const T*>(from), static_cast<T*>(to), WalkLoops<Index>(context, walk, indices, wide_indices));
}

/// The same walk over items of `factor` elements; all steps are divided by it.
IndexWalk widened(const IndexWalk& walk, std::int64_t factor) {
  IndexWalk wide = walk;
  wide.inner /= factor;
  for (int i = 0; i < walk.depth; ++i) wide.axes[static_cast<std::size_t>(i)].step /= factor;
  wide.loops = StridedLoops();
  for (int i = 0; i < walk.loops.rank(); ++i)
    wide.loops.add(walk.loops[i].dim, walk.loops[i].from / factor, walk.loops[i].to);
  return wide;
}

template <typename T>
__global__ void __launch_bounds__(threads)
    scatter_items(ScatterKind kind, const T* updates, T* to, const __grid_constant__ WalkLoops<std::uint32_t> loops,
                  StridedLoops::Loop chain) {
  wait_for_previous();
  const std::uint32_t item = blockIdx.x * threads + threadIdx.x;
  if (item >= loops.items) return;
  const std::uint32_t row = loops.inner.divide(item), inner = loops.inner.divisor(), column = item - row * inner;
  const auto place = loops.start(row);
  for (std::int64_t link = 0; link < chain.dim; ++link) {
    const std::int64_t tuple = place.tuple + link * chain.to;
    const std::int64_t named = loops.named(tuple);
    if (named < 0) {
      loops.report();
      continue;
    }
    T& y = to[place.from + link * chain.from + named + column];
    y = scattered(kind, y, updates[tuple * inner + column]);
  }
}

}  // namespace

void gather(const Context& context, std::size_t element_bytes, const IndexWalk& walk, const void* from,
            const void* indices, bool wide_indices, void* to) {
  const std::int64_t items = walk.loops.count() * walk.inner;
  if (items == 0) return;
  // The named slices are `inner` long, at multiples of it.
  const std::size_t bytes = access_bytes(walk.inner, element_bytes, from, to);
  const IndexWalk wide = widened(walk, static_cast<std::int64_t>(bytes / element_bytes));
  dispatch_access(bytes, [&]<typename T>(std::type_identity<T>) {
    if (items < std::numeric_limits<std::int32_t>::max() - threads * unroll)
      launch_gather<T, std::uint32_t>(context, wide, from, indices, wide_indices, to);
    else
      launch_gather<T, std::uint64_t>(context, wide, from, indices, wide_indices, to);
  });
}

void scatter(const Context& context, ScatterKind kind, DType dtype, const IndexWalk& walk,
             const StridedLoops::Loop& chain, const void* indices, bool wide_indices, const void* updates, void* to) {
  const std::int64_t items = walk.loops.count() * walk.inner;
  if (items == 0 || chain.dim == 0) return;
  assert(items <= max_scattered);
  const WalkLoops<std::uint32_t> loops(context, walk, indices, wide_indices);
  const auto run = [&]<typename T>(std::type_identity<T>) {
    launch(context, scatter_items<T>, blocks_for(items, threads), threads, 0, kind, static_cast<const T*>(updates),
           static_cast<T*>(to), loops, chain);
  };
  if (kind != ScatterKind::none) return dispatch(dtype, ScatterTypes(), run);
  // Any type of the right size serves to move elements: these kernels exist already.
  using Movers = Types<std::uint8_t, std::uint16_t, std::int32_t, std::int64_t>;
  constexpr DType movers[] = {DType::u8, DType::u16, DType::i32, DType::i64};
  for (const DType mover : movers)
    if (dtype_bytes(mover) == dtype_bytes(dtype)) return dispatch(mover, Movers(), run);
}

}  // namespace lenslet::cuda
