// ElementwiseChain: one kernel for any chain, which it interprets on packs in registers. All threads branch alike,
// which costs little beside memory. An operand is loaded by the function that takes it: many threads have loads in
// flight. With all operands loaded first, instructions were the limit, 72 an element: x * gate + a + b of
// 64x96x56x56, fp16, took 101 us on an H200. A thread's packs lie whole rows apart, so that an operand with numbers for
// each channel is loaded once for all of them.

#include <algorithm>

#include "base/cuda/vector.cuh"
#include "ops/core/approximate_math.cuh"
#include "ops/core/scalar_math.h"
#include "ops/elementwise/binary_kinds.h"
#include "ops/elementwise/chain_cuda.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

namespace {

using Kind = ChainFunction::Kind;

/// A chain as a kernel argument.
struct DeviceChain {
  std::int32_t count = 0;
  ChainFunction at[most_chain_functions] = {};
  std::uint32_t floats = 0;  ///< bit i: operand i is float32 beside 16 bits
  std::uint32_t held = 0;    ///< bit i: operand i is one pack for all of a thread's
  std::uint32_t dense = 0;   ///< bit i: operand i lies as y does, in its type
};
LENSLET_HOST_DEVICE constexpr bool has_bit(std::uint32_t bits, std::size_t i) { return (bits >> i & 1U) != 0; }

/// Most threads of a block, whose packs are whole rows.
constexpr int most_chain_threads = 256;

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

/// v = the chain of v, which is rounded to T. fetch(i, values) gives the elements of operand i.
template <typename T, int n, typename Fetch>
__device__ void run_chain(const DeviceChain& chain, float (&v)[n], const Fetch& fetch) {
  const auto each = [&](auto of) {
#pragma unroll
    for (int k = 0; k < n; ++k) v[k] = of(v[k]);
  };
  int operand = 0;
#pragma unroll 1
  for (int i = 0; i < chain.count; ++i) {
    const ChainFunction f = chain.at[i];
    float w[n], factor[n];
    if (f.inputs == 0)
#pragma unroll
      for (int k = 0; k < n; ++k) w[k] = f.a;
    if (f.inputs == 2) fetch(operand++, factor);
    if (f.inputs != 0) fetch(operand++, w);
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
#define LENSLET_CASE(NAME, ...)                                                                      \
  case Activation::Kind::NAME:                                                                       \
    each([&](float x) {                                                                              \
      if constexpr (is_half<T>)                                                                      \
        return activated<Activation::Kind::NAME>(ApproximateMath(), Approximate{x}, f.a, f.b).value; \
      else                                                                                           \
        return activated<Activation::Kind::NAME>(ScalarMath<float>(), x, f.a, f.b);                  \
    });                                                                                              \
    break;
          LENSLET_ACTIVATIONS(LENSLET_CASE)
#undef LENSLET_CASE
        }
        break;
      case Kind::Square:
        each([](float x) { return x * x; });
        break;
      case Kind::ScaleShift:
#pragma unroll
        for (int k = 0; k < n; ++k) v[k] = fmaf(v[k], factor[k], w[k]);
        break;
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

template <typename X>
__device__ float element_at(const Operand& operand, std::uint32_t index) {
  return as_float(static_cast<const X*>(operand.data)[operand.walk.offset(index)]);
}
/// The packs of the thread, or `loads` of 1: one for all of them, as floats.
template <typename X, int pack, int loads, int n>
__device__ void packs_at(const Operand& operand, std::uint32_t first, std::uint32_t packs, float (&to)[n]) {
  if constexpr (is_half<X>) {
    const bool whole = operand.walk.form == Walk::Form::whole;
    if (whole || operand.walk.form == Walk::Form::packs) {
      EightHalves<X> words[loads];
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        const std::uint32_t index = first + u * blockDim.x < packs ? first + u * blockDim.x : first;
        const std::int64_t at = whole ? std::int64_t{index} * pack : operand.walk.offset(index * pack);
        words[u] = *reinterpret_cast<const EightHalves<X>*>(static_cast<const X*>(operand.data) + at);
      }
#pragma unroll
      for (int k = 0; k < n; ++k) to[k] = widened(words[k / pack % loads].at(k % pack));
      return;
    }
  }
  const Packs<X, pack, loads> loaded = load<false, pack, loads, X>(operand, first, packs, blockDim.x);
#pragma unroll
  for (int k = 0; k < n; ++k) to[k] = as_float(loaded.at[k / pack % loads].at[k % pack]);
}

/// The thread's packs of an operand. `held`: one for all.
template <typename X, int pack, int count>
__device__ void operand_packs(const Operand& operand, bool held, std::uint32_t first, std::uint32_t packs,
                              float (&to)[pack * count]) {
  if (held)
    packs_at<X, pack, 1>(operand, first, packs, to);
  else
    packs_at<X, pack, count>(operand, first, packs, to);
}

__device__ void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

/// Operand 0 is x; those of the functions follow. elems < 2^31.
template <typename T>
__global__ void __launch_bounds__(most_chain_threads, 3)
    chain_kernel(const __grid_constant__ DeviceChain chain, T* y, bool packs_aligned, std::uint32_t elems,
                 const __grid_constant__ Operands<1 + most_chain_operands> operands) {
  wait_for_previous();
  let_next_start();
  constexpr int pack = any_pack_elems<T>, count = any_thread_elems<T> / pack, n = pack * count;
  const std::uint32_t packs = elems / pack;
  const std::uint32_t first = blockIdx.x * (count * blockDim.x) + threadIdx.x;
  if (first < packs) {
    // A function loads its operand when the one before is done: memory should have begun by then.
    for (std::uint32_t rest = chain.dense; rest != 0; rest &= rest - 1) {
      const T* const data = static_cast<const T*>(operands.at[__ffs(static_cast<int>(rest))].data);
#pragma unroll
      for (int u = 0; u < count; ++u)
        if (const std::uint32_t index = first + u * blockDim.x; index < packs)
          prefetch_to_l2(data + std::uint64_t{index} * pack);
    }
    float v[n];
    packs_at<T, pack, count>(operands.at[0], first, packs, v);
    run_chain<T>(chain, v, [&](int i, float(&to)[n]) {
      const bool held = has_bit(chain.held, i);
      if (is_half<T> && has_bit(chain.floats, i))
        operand_packs<float, pack, count>(operands.at[1 + i], held, first, packs, to);
      else
        operand_packs<T, pack, count>(operands.at[1 + i], held, first, packs, to);
    });
#pragma unroll
    for (int u = 0; u < count; ++u) {
      const std::uint32_t index = first + u * blockDim.x;
      if (index >= packs) break;
      if constexpr (is_half<T>)
        if (packs_aligned) {
          const float* const e = v + u * pack;
          reinterpret_cast<EightHalves<T>*>(y)[index] =
              as_stored<EightHalves<T>>(Eight{float4{e[0], e[1], e[2], e[3]}, float4{e[4], e[5], e[6], e[7]}});
          continue;
        }
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
    float v[1]{element_at<T>(operands.at[0], rest)};
    run_chain<T>(chain, v, [&](int i, float(&to)[1]) {
      const Operand& operand = operands.at[1 + i];
      to[0] = is_half<T> && has_bit(chain.floats, i) ? element_at<float>(operand, rest) : element_at<T>(operand, rest);
    });
    y[rest] = from_float<T>(v[0]);
  }
}

/// Whether blocks can have whole rows.
bool goes_by_rows(const BroadcastLoops& loops, int pack) {
  return loops.rank > 1 && loops.inner() % pack == 0 && loops.inner() / pack <= most_chain_threads;
}
/// Whether all rows have the same elements of an operand.
bool is_alike(const BroadcastLoops& loops, std::size_t operand) {
  const auto outer = std::span(loops.strides[operand]).first(static_cast<std::size_t>(loops.rank) - 1);
  return std::ranges::all_of(outer, [](std::int64_t stride) { return stride == 0; });
}

template <typename T>
void run(const Context& context, DeviceChain chain, const BroadcastLoops& loops, std::span<const void* const> inputs,
         T* y) {
  constexpr int pack = any_pack_elems<T>;
  for_each_piece(loops, std::int64_t{1} << 30, [&](const Piece& piece) {
    const auto operand = [&]<typename X>(std::size_t input, std::type_identity<X>) {
      const X* from = static_cast<const X*>(inputs[input]) + piece.offsets[input + 1];
      return Operand{from, make_walk(piece.loops, static_cast<int>(input) + 1, aligned_as_pack<pack>(from), pack)};
    };
    Operands<1 + most_chain_operands> operands{};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      operands.at[i] = is_half<T> && i > 0 && has_bit(chain.floats, i - 1) ? operand(i, std::type_identity<float>())
                                                                           : operand(i, std::type_identity<T>());
    int threads = elementwise_threads;
    chain.held = chain.dense = 0;
    for (std::size_t i = 1; i < inputs.size(); ++i)
      if (operands.at[i].walk.form == Walk::Form::whole && !has_bit(chain.floats, i - 1)) chain.dense |= 1U << (i - 1);
    if (goes_by_rows(piece.loops, pack)) {
      const int row = static_cast<int>(piece.loops.inner()) / pack;
      threads = row * std::max(1, threads / row);
      for (std::size_t i = 1; i < inputs.size(); ++i)
        if (is_alike(piece.loops, i + 1)) chain.held |= 1U << (i - 1);
    }
    T* to = y + piece.offsets[0];
    launch(context, chain_kernel<T>, blocks_for(piece.elems, any_thread_elems<T> * threads), threads, 0, chain, to,
           aligned_as_pack<pack>(to), static_cast<std::uint32_t>(piece.elems), operands);
  });
}

}  // namespace

void chain(const Context& context, const Chain& chain, DType dtype, const BroadcastLoops& loops,
           std::span<const void* const> inputs, std::uint32_t floats, void* y) {
  DeviceChain functions{.count = chain.count, .floats = floats};
  std::ranges::copy(chain.at, functions.at);
  dispatch(dtype, WithHalves<FloatTypes>(),
           [&]<typename T>(std::type_identity<T>) { run(context, functions, loops, inputs, static_cast<T*>(y)); });
}

}  // namespace lenslet::cuda
