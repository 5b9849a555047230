// ElementwiseChain: one kernel for any chain, which it interprets on packs in registers. All threads branch alike,
// which costs little beside memory; operands are loaded before the first function, so that all loads are in flight
// together.

#include <algorithm>

#include "ops/core/scalar_math.h"
#include "ops/elementwise/binary_kinds.h"
#include "ops/elementwise/chain_cuda.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

namespace {

using Kind = ChainFunction::Kind;

/// A chain as a kernel argument. Operands of y's type are taken in their order, float32 beside 16 bits by their number.
struct DeviceChain {
  std::int32_t count = 0;
  struct Function {
    ChainFunction f;
    std::int8_t from[2];  ///< of its inputs: the float32 operand, or -1
  } at[most_chain_functions];
};

template <typename T>
__device__ float as_float(T value) {
  if constexpr (is_half<T>)
    return widened(value);
  else
    return value;
}
template <typename T>
__device__ T from_float(float value) {
  if constexpr (is_half<T>)
    return narrowed<T>(value);
  else
    return value;
}

/// v = the chain of v. fetch(from, values) gives the next operand's elements, or those of float32 operand `from`.
template <int n, typename Fetch>
__device__ void run_chain(const DeviceChain& chain, float (&v)[n], const Fetch& fetch) {
  const auto each = [&](auto of) {
#pragma unroll
    for (int k = 0; k < n; ++k) v[k] = of(v[k]);
  };
#pragma unroll 1
  for (int i = 0; i < chain.count; ++i) {
    const ChainFunction f = chain.at[i].f;
    float w[n];
    if (f.inputs > 0) {
      fetch(chain.at[i].from[0], w);
    } else {
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = f.a;
    }
    if (f.reversed) {
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const float swapped = v[k];
        v[k] = w[k];
        w[k] = swapped;
      }
    }
    switch (f.kind) {
      case Kind::activation:
        switch (f.activation) {
#define LENSLET_CASE(NAME, ...)                                                                         \
  case Activation::Kind::NAME:                                                                          \
    each([&](float x) { return activated<Activation::Kind::NAME>(ScalarMath<float>(), x, f.a, f.b); }); \
    break;
          LENSLET_ACTIVATIONS(LENSLET_CASE)
#undef LENSLET_CASE
        }
        break;
      case Kind::Square:
        each([](float x) { return x * x; });
        break;
      case Kind::ScaleShift: {
        float shift[n];
        fetch(chain.at[i].from[1], shift);
#pragma unroll
        for (int k = 0; k < n; ++k) v[k] = fmaf(v[k], w[k], shift[k]);
        break;
      }
#define LENSLET_CASE(NAME)                     \
  case Kind::NAME:                             \
    each(Unary<UnaryKind::NAME, float>{0, 0}); \
    break;
        LENSLET_CHAIN_UNARY(LENSLET_CASE)
#undef LENSLET_CASE
#define LENSLET_CASE(NAME)                                                                                \
  case Kind::NAME:                                                                                        \
    _Pragma("unroll") for (int k = 0; k < n; ++k) v[k] = BinaryOf<BinaryKind::NAME, float>()(v[k], w[k]); \
    break;
        LENSLET_CHAIN_BINARY(LENSLET_CASE)
#undef LENSLET_CASE
    }
  }
}

/// x, then `queued` operands of type T; the float32 operands beside 16 bits. elems < 2^31.
template <int queued, typename T>
__global__ void __launch_bounds__(elementwise_threads)
    chain_kernel(const __grid_constant__ DeviceChain chain, T* y, bool packs_aligned, std::uint32_t elems,
                 const __grid_constant__ Operands<1 + queued> x,
                 const __grid_constant__ Operands<is_half<T> ? most_chain_operands : 1> floats) {
  wait_for_previous();
  let_next_start();
  constexpr int pack = any_pack_elems<T>, count = queued < 2 ? 2 : 1, n = pack * count;
  const std::uint32_t packs = elems / pack;
  const std::uint32_t first = blockIdx.x * (count * elementwise_threads) + threadIdx.x;
  if (first < packs) {
    // The operands that are still to come, the next one first: taking one moves the others up, in registers.
    Packs<T, pack, count> queue[1 + queued];
#pragma unroll
    for (int i = 0; i <= queued; ++i) queue[i] = load<false, pack, count, T>(x.at[i], first, packs);
    const auto take = [&](float(&to)[n]) {
#pragma unroll
      for (int k = 0; k < n; ++k) to[k] = as_float(queue[0].at[k / pack].at[k % pack]);
#pragma unroll
      for (int i = 0; i < queued; ++i) queue[i] = queue[i + 1];
    };
    float v[n];
    take(v);
    run_chain(chain, v, [&](int from, float(&to)[n]) {
      if constexpr (is_half<T>)
        if (from >= 0) {
          const auto loaded = load<false, pack, count, float>(floats.at[from], first, packs);
#pragma unroll
          for (int k = 0; k < n; ++k) to[k] = loaded.at[k / pack].at[k % pack];
          return;
        }
      take(to);
    });
#pragma unroll
    for (int u = 0; u < count; ++u) {
      const std::uint32_t index = first + u * elementwise_threads;
      if (index >= packs) break;
      Pack<T, pack> result;
#pragma unroll
      for (int k = 0; k < pack; ++k) result.at[k] = from_float<T>(v[u * pack + k]);
      if (packs_aligned) {
        reinterpret_cast<Pack<T, pack>*>(y)[index] = result;
      } else {
#pragma unroll
        for (int k = 0; k < pack; ++k) y[std::uint64_t{index} * pack + k] = result.at[k];
      }
    }
  }
  const std::uint32_t rest = packs * pack + threadIdx.x;  // the last elems % pack
  if (blockIdx.x == gridDim.x - 1 && rest < elems) {
    int next = 0;
    const auto take = [&](float(&to)[1]) {
      const Operand& operand = x.at[next++];
      to[0] = as_float(static_cast<const T*>(operand.data)[operand.walk.offset(rest)]);
    };
    float v[1];
    take(v);
    run_chain(chain, v, [&](int from, float(&to)[1]) {
      if (is_half<T> && from >= 0)
        to[0] = static_cast<const float*>(floats.at[from].data)[floats.at[from].walk.offset(rest)];
      else
        take(to);
    });
    y[rest] = from_float<T>(v[0]);
  }
}

template <int queued, typename T>
void run(const Context& context, const DeviceChain& chain, const BroadcastLoops& loops,
         std::span<const void* const> inputs, std::uint32_t floats, T* y) {
  constexpr int pack = any_pack_elems<T>, count = queued < 2 ? 2 : 1;
  for_each_piece(loops, std::int64_t{1} << 30, [&](const Piece& piece) {
    const auto operand = [&]<typename X>(std::size_t input, std::type_identity<X>) {
      const X* from = static_cast<const X*>(inputs[input]) + piece.offsets[input + 1];
      return Operand{from, make_walk(piece.loops, static_cast<int>(input) + 1, aligned_as_pack<pack>(from), pack)};
    };
    Operands<1 + queued> x;
    for (Operand& each : x.at) each = operand(0, std::type_identity<T>());  // of what the chain does not have: x again
    Operands<is_half<T> ? most_chain_operands : 1> wide;
    std::size_t next = 1, next_wide = 0;
    for (std::size_t i = 1; i < inputs.size(); ++i)
      if (is_half<T> && (floats >> (i - 1) & 1) != 0)
        wide.at[next_wide++] = operand(i, std::type_identity<float>());
      else
        x.at[next++] = operand(i, std::type_identity<T>());
    T* to = y + piece.offsets[0];
    launch(context, chain_kernel<queued, T>, blocks_for(piece.elems, pack * count * elementwise_threads),
           elementwise_threads, 0, chain, to, aligned_as_pack<pack>(to), static_cast<std::uint32_t>(piece.elems), x,
           wide);
  });
}

}  // namespace

void chain(const Context& context, const Chain& chain, DType dtype, const BroadcastLoops& loops,
           std::span<const void* const> inputs, std::uint32_t floats, void* y) {
  dispatch(dtype, WithHalves<FloatTypes>(), [&]<typename T>(std::type_identity<T>) {
    DeviceChain functions;
    functions.count = chain.count;
    std::size_t operand = 0, queued = 0;
    std::int8_t wide = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(chain.count); ++i) {
      functions.at[i] = {chain.at[i], {-1, -1}};
      for (std::size_t k = 0; k < chain.at[i].inputs; ++k)
        if (is_half<T> && (floats >> operand++ & 1) != 0)
          functions.at[i].from[k] = wide++;
        else
          ++queued;
    }
    const auto with = [&]<int most>(std::integral_constant<int, most>) {
      run<most, T>(context, functions, loops, inputs, floats, static_cast<T*>(y));
    };
    if (queued == 0)
      with(std::integral_constant<int, 0>());
    else if (queued == 1)
      with(std::integral_constant<int, 1>());
    else if (queued == 2)
      with(std::integral_constant<int, 2>());
    else
      with(std::integral_constant<int, most_chain_operands>());
  });
}

}  // namespace lenslet::cuda
