#pragma once
// The folds of pools, and the assignment of outputs to threads.
//
// A tensor is viewed as [images, in0, in1, in2, depth]: depth is C in nhwc (in float4 or eight halves if C and the
// addresses allow) and 1 in nchw, where each plane counts as an image. A thread computes one output, or four or eight
// adjacent channels of it, stored as Stored and computed as Loaded<Stored>. Adjacent threads go along the depth, then
// the line, so that a warp's accesses are contiguous in both layouts.

#include <cstdint>
#include <type_traits>

#include "base/cuda/vector.cuh"
#include "ops/core/radix.cuh"
#include "ops/pool/pool_kernels.h"
#include "ops/reduce/fold.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// Adjacent channels per thread: one, four or eight.
template <typename Value>
__device__ Value least() {
  if constexpr (std::is_same_v<Value, float4>) {
    const float one = least<float>();
    return make_float4(one, one, one, one);
  } else if constexpr (std::is_class_v<Value>) {
    const auto half = narrowed<typename Value::Half>(least<float>());
    const std::uint32_t pair = paired(half, half);
    return {{pair, pair, pair, pair}};
  } else {
    return reduce::least_value<Value>;
  }
}
template <typename T>
__device__ T greater(T a, T b) {
  return b > a ? b : a;
}
/// NaN if either is: one instruction, as fmaxf.
template <>
__device__ float greater(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
template <>
__device__ float4 greater(float4 a, float4 b) {
  return make_float4(greater(a.x, b.x), greater(a.y, b.y), greater(a.z, b.z), greater(a.w, b.w));
}
/// Two halves per instruction: a maximum needs no floats.
template <typename T>
__device__ EightHalves<T> greater(EightHalves<T> a, EightHalves<T> b) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if constexpr (std::is_same_v<T, Float16>)
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(a.pairs[k]) : "r"(a.pairs[k]), "r"(b.pairs[k]));
    else
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(a.pairs[k]) : "r"(a.pairs[k]), "r"(b.pairs[k]));
  return a;
}

/// The operand type of a maximum.
template <typename T>
struct MaxOf : std::type_identity<Loaded<T>> {};
template <typename T>
struct MaxOf<EightHalves<T>> : std::type_identity<EightHalves<T>> {};

template <typename Value, typename Stored>
__device__ Value value_of(const Stored& stored) {
  if constexpr (std::is_same_v<Value, Stored>)
    return stored;
  else
    return loaded(stored);
}

/// Partial folds are kept as Partial.
template <typename T>
struct MaxFold {
  using Stored = T;
  using Value = typename MaxOf<T>::type;
  using Partial = T;
  static constexpr bool sums = false;
  __device__ static Value start() { return least<Value>(); }
  __device__ static Value join(Value a, Value b) { return greater(a, b); }
};
template <typename T>
struct SumFold {
  using Stored = T;
  using Value = Loaded<T>;
  using Partial = Value;
  static constexpr bool sums = true;
  __device__ static Value start() { return Value{}; }
  __device__ static Value join(Value a, Value b) { return a + b; }
};

/// The assignment of outputs to threads.
struct Outputs {
  Radix depth, line, lines, slices;  ///< slices: out[0]
  std::int64_t count = 0;
  PoolPixels pixel;  ///< as depth is counted; 1 in nchw
  bool narrow = true;

  struct Place {
    std::int64_t image, slice, line, column, channel;
    std::int64_t pixel;   ///< of all images of y
    std::int64_t stored;  ///< offset in y
  };
  /// `flat`: a single slice.
  __device__ Place place(std::int64_t output, bool flat = false) const {
    Place at{};
    at.channel = take_digit(output, depth, narrow);
    at.pixel = output;
    at.stored = output * pixel.y + at.channel;
    at.column = take_digit(output, line, narrow);
    at.line = take_digit(output, lines, narrow);
    if (!flat) at.slice = take_digit(output, slices, narrow);
    at.image = output;
    return at;
  }
};

// What is stored for a fold's value: after(value, place).

struct AsItIs {
  template <typename Value>
  __device__ Value operator()(Value value, const Outputs::Place&) const {
    return value;
  }
};

/// PoolDifference: y = residual + scale * (value - x), where y's pixels are those of x and of the residual.
template <typename Stored>
struct MinusInput {
  const Stored *x = nullptr, *residual = nullptr;
  const void* scale = nullptr;
  bool scale_stored = false;                     ///< in the type of x; else float32
  std::int64_t x_pixel = 1, residual_pixel = 1;  ///< as Outputs::pixel
  std::int64_t planes = 1;                       ///< nchw: images that are the channels of one; nhwc: 1

  template <typename Value>
  __device__ Value operator()(Value value, const Outputs::Place& at) const {
    value = value - loaded(x[at.pixel * x_pixel + at.channel]);
    if (scale != nullptr) {
      const std::int64_t channel = planes == 1 ? at.channel : at.image % planes;
      value = value * (scale_stored ? loaded(static_cast<const Stored*>(scale)[channel])
                                    : static_cast<const Value*>(scale)[channel]);
    }
    if (residual != nullptr) value = loaded(residual[at.pixel * residual_pixel + at.channel]) + value;
    return value;
  }
};

__device__ std::int64_t thread_index() { return static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; }

}  // namespace
}  // namespace lenslet::cuda
