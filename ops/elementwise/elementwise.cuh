#pragma once
// y[i] = f(a[i], b[i] ...) with broadcasting, for any element types and function: the basis of all elementwise kernels.
//
//   elementwise<Kernels::both>(context, loops, Sum{}, y, a, b);
//
// A thread processes packs of adjacent output elements (four, or two of 8 bytes, or eight of 2 bytes) and loads several
// packs of every operand before the first store, so that y may be any operand with its shape and layout. Each operand
// has a Walk: equal shapes and scalars cost nothing, a repeated vector one multiplication and shift per pack and loop.

#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>
#include <utility>

#include "base/convert.h"
#include "base/cuda/launch.h"
#include "lenslet/tensor.h"
#include "ops/core/walk.h"

namespace lenslet::cuda {

inline constexpr int elementwise_threads = 128;

template <typename T, int elems = pack_elems>
struct alignas(sizeof(T) * elems < 16 ? sizeof(T) * elems : 16) Pack {
  T at[elems];
};

template <typename... T>
inline constexpr bool all_two_bytes = ((sizeof(T) == 2) && ...);
/// The pack size of most kernels.
template <typename... T>
inline constexpr int any_pack_elems = all_two_bytes<T...> ? half_pack_elems : pack_elems;
/// The pack size of flat kernels: two for 8-byte elements, or a warp's store would fill only every other 16 bytes.
template <typename... T>
inline constexpr int flat_pack_elems = ((sizeof(T) == 8) || ...) ? 2 : any_pack_elems<T...>;
/// Output elements per thread, in flat kernels and in others.
template <typename... T>
inline constexpr int flat_thread_elems = all_two_bytes<T...> ? 32 : 16;
template <typename... T>
inline constexpr int any_thread_elems = all_two_bytes<T...> ? 16 : 8;

/// A float function applied to 16-bit elements: widened exactly, and the result rounded once.
template <typename Half, typename F>
struct OfHalves {
  F f;
  template <typename... X>
  __device__ Half operator()(X... x) const {
    return narrowed<Half>(f(widened(x)...));
  }
};

struct Operand {
  const void* data;
  Walk walk;
  bool short_walk;  ///< at most three loops, and offsets below 2^32
};

template <int count>
struct Operands {
  Operand at[count];
};

/// A thread's packs: `first`, first + elementwise_threads ...
template <typename X, int elems, int count>
struct Packs {
  Pack<X, elems> at[count];
};

/// Offset of a pack that begins at `index`: walk.offset() in 32 bits without a loop, where that will do (biases and
/// gates), a third of the instructions.
__device__ inline std::int64_t pack_offset(const Operand& operand, std::uint32_t index) {
  const Walk& walk = operand.walk;
  if (!operand.short_walk) return walk.offset(index);
  std::uint32_t at = 0;
#pragma unroll
  for (int d = 2; d > 0; --d) {
    if (d >= walk.rank) continue;
    const std::uint32_t outer = walk.dims[d].divide(index);
    at += (index - outer * walk.dims[d].divisor()) * static_cast<std::uint32_t>(walk.strides[d]);
    index = outer;
  }
  return at + index * static_cast<std::uint32_t>(walk.strides[0]);
}

/// One branch per operand, outside of the loop over packs, so that all its loads are in flight together. first < packs.
template <bool flat, int elems, int count, typename X>
__device__ Packs<X, elems, count> load(const Operand& x, std::uint32_t first, std::uint32_t packs) {
  Packs<X, elems, count> values;
  const X* const data = static_cast<const X*>(x.data);
  // Out of range a thread rereads its first pack: loads without branches can all be issued before the first use.
  const auto each_pack = [&](const auto& fetch) {
#pragma unroll
    for (int u = 0; u < count; ++u) {
      const std::uint32_t pack = first + u * elementwise_threads;
      values.at[u] = fetch(pack < packs ? pack : first);
    }
  };
  const auto gather = [](const auto& fetch) {
    Pack<X, elems> pack;
#pragma unroll
    for (int k = 0; k < elems; ++k) pack.at[k] = fetch(k);
    return pack;
  };
  const auto splat = [&](X value) { return gather([&](int) { return value; }); };
  const Walk& walk = x.walk;
  if (walk.form == Walk::Form::single) {
    const X value = *data;
    each_pack([&](std::uint32_t) { return splat(value); });
  } else if (walk.form == Walk::Form::whole) {
    each_pack([&](std::uint32_t pack) { return reinterpret_cast<const Pack<X, elems>*>(data)[pack]; });
  } else if (flat) {  // whole, apart from alignment
    each_pack([&](std::uint32_t pack) {
      const X* from = data + std::uint64_t{pack} * elems;
      return gather([&](int k) { return from[k]; });
    });
  } else if (walk.form == Walk::Form::packs) {
    each_pack([&](std::uint32_t pack) {
      return *reinterpret_cast<const Pack<X, elems>*>(data + pack_offset(x, pack * elems));
    });
  } else if (walk.form == Walk::Form::splats) {
    each_pack([&](std::uint32_t pack) { return splat(data[pack_offset(x, pack * elems)]); });
  } else {
    each_pack([&](std::uint32_t pack) { return gather([&](int k) { return data[walk.offset(pack * elems + k)]; }); });
  }
  return values;
}

template <int elems, int count, typename F, typename Y, typename... X>
__device__ void compute_and_store(const F& f, Y* y, bool packs_aligned, std::uint32_t first, std::uint32_t packs,
                                  const Packs<X, elems, count>&... x) {
#pragma unroll
  for (int u = 0; u < count; ++u) {
    const std::uint32_t index = first + u * elementwise_threads;
    if (index >= packs) return;
    Pack<Y, elems> result;
#pragma unroll
    for (int k = 0; k < elems; ++k) result.at[k] = f(x.at[u].at[k]...);
    if (packs_aligned) {
      reinterpret_cast<Pack<Y, elems>*>(y)[index] = result;
    } else {
#pragma unroll
      for (int k = 0; k < elems; ++k) y[std::uint64_t{index} * elems + k] = result.at[k];
    }
  }
}

/// `flat`: every operand is a single loop of step 0 or 1, which frees registers for more packs per thread. `elems` <
/// 2^31.
template <bool flat, typename F, typename Y, typename... X>
__global__ void __launch_bounds__(elementwise_threads)
    elementwise_kernel(const F f, Y* y, bool packs_aligned, std::uint32_t elems,
                       const __grid_constant__ Operands<sizeof...(X)> x) {
  wait_for_previous();
  let_next_start();
  constexpr int per_pack = flat ? flat_pack_elems<Y, X...> : any_pack_elems<Y, X...>;
  constexpr int count = (flat ? flat_thread_elems<Y, X...> : any_thread_elems<Y, X...>) / per_pack;
  const std::uint32_t packs = elems / per_pack;
  const std::uint32_t first = blockIdx.x * (count * elementwise_threads) + threadIdx.x;
  const std::uint32_t rest = packs * per_pack + threadIdx.x;  // the last elems % per_pack
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    if (first < packs)
      compute_and_store<per_pack, count>(f, y, packs_aligned, first, packs,
                                         load<flat, per_pack, count, X>(x.at[i], first, packs)...);
    if (blockIdx.x == gridDim.x - 1 && rest < elems)
      y[rest] = f(static_cast<const X*>(x.at[i].data)[x.at[i].walk.offset(rest)]...);
  }
  (std::index_sequence_for<X...>());
}

/// Which kernels are instantiated for a function.
enum class Kernels {
  flat,  ///< operands have y's shape and layout, or one element
  any,   ///< any operands, one kernel: where compile time counts more than the last 10% of bandwidth
  both,  ///< any operands, and the flat kernel where it will do
};

template <int pack, typename T>
bool aligned_as_pack(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Pack<T, pack>) == 0;
}

/// Operand `index` of the piece, `data` being its first element in all pieces.
template <int pack, typename X>
Operand operand_of(const Piece& piece, int index, const X* data) {
  const X* from = data + piece.offsets[static_cast<std::size_t>(index)];
  const Walk walk = make_walk(piece.loops, index, aligned_as_pack<pack>(from), pack);
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(piece.loops.rank); ++d)
    last += (piece.loops.dims[d] - 1) * piece.loops.strides[static_cast<std::size_t>(index)][d];
  return {from, walk, walk.rank <= 3 && last < std::int64_t{1} << 32};
}

/// y[i] = f(x[i]...) for the operands of `loops`, y first. f is copied to the device.
template <Kernels kernels, typename F, typename Y, typename... X>
void elementwise(const Context& context, const BroadcastLoops& loops, const F& f, Y* y, const X*... x) {
  constexpr int pack = any_pack_elems<Y, X...>;
  using Kernel = void(F, Y*, bool, std::uint32_t, Operands<sizeof...(X)>);
  for_each_piece(loops, std::int64_t{1} << 30, [&](const Piece& piece) {
    int index = 0;
    const auto operand = [&](const auto* data) { return operand_of<pack>(piece, ++index, data); };
    const Operands<sizeof...(X)> operands{{operand(x)...}};  // in braces: in this order
    Y* to = y + piece.offsets[0];
    const auto run = [&](Kernel* kernel, int elems_per_thread) {
      launch(context, kernel, blocks_for(piece.elems, elems_per_thread * elementwise_threads), elementwise_threads, 0,
             f, to, aligned_as_pack<pack>(to), static_cast<std::uint32_t>(piece.elems), operands);
    };
    bool flat = true;
    for (const Operand& each : operands.at) flat = flat && each.walk.rank == 1 && each.walk.strides[0] <= 1;
    assert(flat || kernels != Kernels::flat);
    if constexpr (kernels != Kernels::any)
      if (flat) return run(elementwise_kernel<true, F, Y, X...>, flat_thread_elems<Y, X...>);
    if constexpr (kernels != Kernels::flat) run(elementwise_kernel<false, F, Y, X...>, any_thread_elems<Y, X...>);
  });
}

/// Loops over one operand with y's layout.
inline BroadcastLoops flat_loops(std::int64_t elems) {
  const Shape line{elems};
  const BroadcastLoops::Operand operands[] = {{&line}, {&line}};
  return {line, formats::nchw, operands};
}

}  // namespace lenslet::cuda
