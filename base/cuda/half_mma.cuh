#pragma once
// Pairs of 16-bit floats in a 32-bit word, and how they are moved. T is Float16 or BFloat16; the element of the lower
// address is the lower half. Products: mma.cuh.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/convert.h"

namespace lenslet::cuda {

/// Widens a pair to float; exact.
template <typename T>
__device__ inline float2 widened_pair(std::uint32_t pair) {
  static_assert(is_half<T>, "T is Float16 or BFloat16: pairs of other types are not converted here");
  if constexpr (std::is_same_v<T, BFloat16>)
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
  else
    return __half22float2(__halves2half2(__ushort_as_half(static_cast<unsigned short>(pair)),
                                         __ushort_as_half(static_cast<unsigned short>(pair >> 16))));
}

/// Rounds two floats to nearest even into a pair; low goes to the lower half.
template <typename T>
__device__ inline std::uint32_t narrowed_pair(float low, float high) {
  static_assert(is_half<T>, "T is Float16 or BFloat16: pairs of other types are not converted here");
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Clamps both numbers of a rounded pair to [low, high]: the same as clamping before rounding, which keeps the order of
/// numbers. NaN stays NaN.
template <typename T>
class PairClamp {
 public:
  __device__ PairClamp(float low, float high) : low_(narrowed_pair<T>(low, low)), high_(narrowed_pair<T>(high, high)) {}

  __device__ std::uint32_t operator()(std::uint32_t pair) const {
    if constexpr (std::is_same_v<T, BFloat16>)
      asm("max.NaN.bf16x2 %0, %0, %1;\n\tmin.NaN.bf16x2 %0, %0, %2;" : "+r"(pair) : "r"(low_), "r"(high_));
    else
      asm("max.NaN.f16x2 %0, %0, %1;\n\tmin.NaN.f16x2 %0, %0, %2;" : "+r"(pair) : "r"(low_), "r"(high_));
    return pair;
  }

 private:
  std::uint32_t low_, high_;
};

/// Starts the copy of 16 bytes from global to shared memory; writes zeros unless `valid`, but `from` must be readable
/// even then. commit_copies() and wait_for_copies() as in copy_async.cuh.
__device__ inline void copy_async_16(void* to, const void* from, bool valid) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// 32-bit word i.
__device__ inline std::uint32_t word_of(std::uint32_t v, int) { return v; }
__device__ inline std::uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Loads 4 * words bytes, or gives zeros without a read. Predicated in PTX: an `if` may become a branch, which splits
/// the batch of loads in flight.
template <int words>
__device__ inline void load_or_zero(std::uint32_t (&to)[words], const void* from, bool inside) {
  static_assert(words == 1 || words == 2 || words == 4);
  if constexpr (words == 4)
    asm volatile(
        "{\n"
        "  .reg .pred inside;\n"
        "  setp.ne.s32 inside, %5, 0;\n"
        "  mov.b32 %0, 0;\n"
        "  mov.b32 %1, 0;\n"
        "  mov.b32 %2, 0;\n"
        "  mov.b32 %3, 0;\n"
        "  @inside ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "l"(from), "r"(static_cast<int>(inside)));
  else if constexpr (words == 2)
    asm volatile(
        "{\n"
        "  .reg .pred inside;\n"
        "  setp.ne.s32 inside, %3, 0;\n"
        "  mov.b32 %0, 0;\n"
        "  mov.b32 %1, 0;\n"
        "  @inside ld.global.v2.b32 {%0, %1}, [%2];\n"
        "}"
        : "=r"(to[0]), "=r"(to[1])
        : "l"(from), "r"(static_cast<int>(inside)));
  else
    asm volatile(
        "{\n"
        "  .reg .pred inside;\n"
        "  setp.ne.s32 inside, %2, 0;\n"
        "  mov.b32 %0, 0;\n"
        "  @inside ld.global.b32 %0, [%1];\n"
        "}"
        : "=r"(to[0])
        : "l"(from), "r"(static_cast<int>(inside)));
}

/// Loads data constant over the run (packed filters); may precede wait_for_previous().
template <int words>
__device__ inline void load_constant(std::uint32_t (&to)[words], const void* from) {
  static_assert(words == 1 || words == 2 || words == 4);
  if constexpr (words == 4) {
    const uint4 v = __ldg(static_cast<const uint4*>(from));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (words == 2) {
    const uint2 v = __ldg(static_cast<const uint2*>(from));
    to[0] = v.x, to[1] = v.y;
  } else {
    to[0] = __ldg(static_cast<const std::uint32_t*>(from));
  }
}

}  // namespace lenslet::cuda
