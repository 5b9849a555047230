// ElementwiseChain: one kernel for any chain, which it interprets on packs in registers. All threads branch alike,
// which costs little beside memory. An operand is loaded by the function that takes it: many threads have loads in
// flight. With all operands loaded first, instructions were the limit, 72 an element: x * gate + a + b of
// 64x96x56x56, fp16, took 101 us on an H200.

#include <cstdint>

#include "ops/core/scalar_math.h"
#include "ops/elementwise/binary_kinds.h"
#include "ops/elementwise/chain_cuda.h"
#include "ops/elementwise/elementwise.cuh"
#include "ops/elementwise/half_math.cuh"
#include "ops/elementwise/types.h"
#include "ops/elementwise/unary_kinds.h"

namespace lenslet::cuda {

namespace {

using Kind = ChainFunction::Kind;

/// What most chains consist of is apart from the switch, whose code exceeds the caches of instructions.
enum class Step : std::uint8_t {
  affine,  ///< v * a + b
  Mul,
  Add,
  hold,  ///< the operand is kept for the ScaleShift that follows
  any
};

struct DeviceFunction {
  Step step = Step::any;
  std::uint8_t operand = 0;  ///< its first
  ChainFunction f = {};
};

/// A chain as a kernel argument.
struct DeviceChain {
  std::int32_t count = 0;
  DeviceFunction at[most_chain_functions + most_chain_operands / 2] = {};
  std::uint8_t operands = 0;
  std::uint32_t floats = 0;  ///< bit i: operand i is float32 beside 16 bits

  void add(Step step, const ChainFunction& f) {
    at[count++] = {step, operands, f};
    operands += f.inputs;
  }
  /// A sum, difference or product with a number is v * a + b with the same bits.
  void add(ChainFunction f) {
    const bool number = f.inputs == 0, difference = f.kind == Kind::Sub;
    if (number && f.kind == Kind::Mul) {
      f.b = -0.0F;
      return add(Step::affine, f);
    }
    if (number && (f.kind == Kind::Add || difference)) {
      f.b = difference && !f.reversed ? -f.a : f.a;
      f.a = difference && f.reversed ? -1.0F : 1.0F;
      return add(Step::affine, f);
    }
    if (f.kind == Kind::ScaleShift) {
      f.inputs = 1;
      add(Step::hold, f);
    }
    const bool common = !f.reversed && (f.kind == Kind::Mul || f.kind == Kind::Add);
    add(!common ? Step::any : f.kind == Kind::Mul ? Step::Mul : Step::Add, f);
  }
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

template <typename T, Activation::Kind kind>
__device__ float active(float x, float a, float b) {
  if constexpr (is_half<T>)
    return activated<kind>(HalfMath(), Approximate{x}, a, b).value;
  else
    return activated<kind>(ScalarMath<float>(), x, a, b);
}
template <typename T, UnaryKind kind>
__device__ float of_one(float x) {
  if constexpr (is_half<T> && kind == UnaryKind::Reciprocal)
    return near_quotient(1, x);
  else
    return Unary<kind, float>{0, 0}(x);
}
template <typename T, BinaryKind kind>
__device__ float of_two(float x, float y) {
  if constexpr (is_half<T> && kind == BinaryKind::Div)
    return near_quotient(x, y);
  else
    return BinaryOf<kind, float>()(x, y);
}

/// v = the chain of v. fetch(i, values) gives the elements of operand i. `held`, in shared memory, has n for each
/// thread, which would take a fifth of the registers.
template <typename T, int n, typename Fetch>
__device__ void run_chain(const DeviceChain& chain, float (&v)[n], float* held, const Fetch& fetch) {
  const auto each = [&](auto of) {
#pragma unroll
    for (int k = 0; k < n; ++k) v[k] = of(v[k]);
  };
#pragma unroll 1
  for (int i = 0; i < chain.count; ++i) {
    const auto& [step, operand, f] = chain.at[i];
    if (step == Step::affine) {
      each([&](float x) { return fmaf(x, f.a, f.b); });
      continue;
    }
    float w[n];
    if (f.inputs != 0) {
      fetch(operand, w);
      if (step == Step::Mul) {
#pragma unroll
        for (int k = 0; k < n; ++k) v[k] *= w[k];
        continue;
      }
      if (step == Step::Add) {
#pragma unroll
        for (int k = 0; k < n; ++k) v[k] += w[k];
        continue;
      }
      if (step == Step::hold) {
#pragma unroll
        for (int k = 0; k < n; ++k) held[k * elementwise_threads + threadIdx.x] = w[k];
        continue;
      }
    } else if (f.kind == Kind::activation) {
      switch (f.activation) {
#define LENSLET_CASE(NAME, ...)                                                    \
  case Activation::Kind::NAME:                                                     \
    each([&](float x) { return active<T, Activation::Kind::NAME>(x, f.a, f.b); }); \
    break;
        LENSLET_ACTIVATIONS(LENSLET_CASE)
#undef LENSLET_CASE
      }
      continue;
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
        break;  // done
      case Kind::Square:
        each([](float x) { return x * x; });
        break;
      case Kind::ScaleShift:
#pragma unroll
        for (int k = 0; k < n; ++k) v[k] = fmaf(v[k], held[k * elementwise_threads + threadIdx.x], w[k]);
        break;
#define LENSLET_CASE(NAME)                                       \
  case Kind::NAME:                                               \
    each([](float x) { return of_one<T, UnaryKind::NAME>(x); }); \
    break;
        LENSLET_CHAIN_UNARY(LENSLET_CASE)
#undef LENSLET_CASE
#define LENSLET_CASE(NAME)                                                                        \
  case Kind::NAME:                                                                                \
    _Pragma("unroll") for (int k = 0; k < n; ++k) v[k] = of_two<T, BinaryKind::NAME>(v[k], w[k]); \
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
/// Thread's packs as floats.
template <typename X, int pack, int count>
__device__ void packs_at(const Operand& operand, std::uint32_t first, std::uint32_t packs, float (&to)[pack * count]) {
  const Packs<X, pack, count> loaded = load<false, pack, count, X>(operand, first, packs);
#pragma unroll
  for (int k = 0; k < pack * count; ++k) to[k] = as_float(loaded.at[k / pack].at[k % pack]);
}

/// Operand 0 is x; those of the functions follow. elems < 2^31.
template <typename T>
__global__ void __launch_bounds__(elementwise_threads)
    chain_kernel(const __grid_constant__ DeviceChain chain, T* y, bool packs_aligned, std::uint32_t elems,
                 const __grid_constant__ Operands<1 + most_chain_operands> operands) {
  wait_for_previous();
  let_next_start();
  constexpr int pack = any_pack_elems<T>, count = any_thread_elems<T> / pack, n = pack * count;
  __shared__ float held[n * elementwise_threads];
  const std::uint32_t packs = elems / pack;
  const std::uint32_t first = blockIdx.x * (count * elementwise_threads) + threadIdx.x;
  if (first < packs) {
    float v[n];
    packs_at<T, pack, count>(operands.at[0], first, packs, v);
    run_chain<T>(chain, v, held, [&](int i, float(&to)[n]) {
      const Operand& operand = operands.at[1 + i];
      if (is_half<T> && (chain.floats >> i & 1) != 0)
        packs_at<float, pack, count>(operand, first, packs, to);
      else
        packs_at<T, pack, count>(operand, first, packs, to);
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
    float v[1]{element_at<T>(operands.at[0], rest)};
    run_chain<T>(chain, v, held, [&](int i, float(&to)[1]) {
      const Operand& operand = operands.at[1 + i];
      to[0] =
          is_half<T> && (chain.floats >> i & 1) != 0 ? element_at<float>(operand, rest) : element_at<T>(operand, rest);
    });
    y[rest] = from_float<T>(v[0]);
  }
}

template <typename T>
void run(const Context& context, const DeviceChain& chain, const BroadcastLoops& loops,
         std::span<const void* const> inputs, T* y) {
  constexpr int pack = any_pack_elems<T>;
  for_each_piece(loops, std::int64_t{1} << 30, [&](const Piece& piece) {
    const auto operand = [&]<typename X>(std::size_t input, std::type_identity<X>) {
      return operand_of<pack>(piece, static_cast<int>(input) + 1, static_cast<const X*>(inputs[input]));
    };
    Operands<1 + most_chain_operands> operands{};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      operands.at[i] = is_half<T> && i > 0 && (chain.floats >> (i - 1) & 1) != 0
                           ? operand(i, std::type_identity<float>())
                           : operand(i, std::type_identity<T>());
    T* to = y + piece.offsets[0];
    launch(context, chain_kernel<T>, blocks_for(piece.elems, any_thread_elems<T> * elementwise_threads),
           elementwise_threads, 0, chain, to, aligned_as_pack<pack>(to), static_cast<std::uint32_t>(piece.elems),
           operands);
  });
}

}  // namespace

void chain(const Context& context, const Chain& chain, DType dtype, const BroadcastLoops& loops,
           std::span<const void* const> inputs, std::uint32_t floats, void* y) {
  DeviceChain functions{.floats = floats};
  for (int i = 0; i < chain.count; ++i) functions.add(chain.at[static_cast<std::size_t>(i)]);
  dispatch(dtype, WithHalves<FloatTypes>(),
           [&]<typename T>(std::type_identity<T>) { run(context, functions, loops, inputs, static_cast<T*>(y)); });
}

}  // namespace lenslet::cuda
