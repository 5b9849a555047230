#pragma once
// Matrix instructions of a warp: mma.sync, ldmatrix, stmatrix (PTX ISA, "Warp-Level Matrix Instructions"), and the
// rounding of their operands to TF32. sm_80; stmatrix sm_90. A warpgroup's are in wgmma.cuh. All 32 lanes take part;
// below g = lane / 4 and t = lane % 4.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/half.h"

namespace lenslet::cuda {

/// d += A * B ("mma"): A [16][K] and B [K][8] of T, fp32 accumulators. K is 16 for Float16 and BFloat16; for float, as
/// TF32, it is 8. A 32-bit word is two elements of K, or one of TF32. A lane has
/// of A: word t of rows g and g + 8, then word t + 4 of the same rows
/// of B: words t and t + 4 of column g
/// of d: columns 2t and 2t + 1 of row g, then of row g + 8
/// TF32 operands must be rounded: the instruction drops all below 10 mantissa bits.
template <typename T>
__device__ inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#define LENSLET_MMA(form)                                                                         \
  asm("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, Float16>)
    LENSLET_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  else if constexpr (std::is_same_v<T, BFloat16>)
    LENSLET_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  else
    LENSLET_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#undef LENSLET_MMA
  static_assert(std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> || std::is_same_v<T, float>);
}

/// The bits of `value` as TF32, to nearest, ties away from zero ("cvt").
__device__ inline std::uint32_t round_to_tf32(float value) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}
/// Rounds a lane's words of an operand of mma<T>, if T is float.
template <typename T>
__device__ inline void round_operand([[maybe_unused]] std::uint32_t (&a)[4]) {
  if constexpr (std::is_same_v<T, float>)
#pragma unroll
    for (std::uint32_t& bits : a) bits = round_to_tf32(__uint_as_float(bits));
}

// Matrices of 8 rows of 16 bytes in shared memory ("ldmatrix", "stmatrix"). Lanes 8i to 8i + 7 give the addresses of
// matrix i's rows; word i of a lane is word t of row g of matrix i. As operand A the matrices are rows 0 to 7 and 8 to
// 15 of the first half of K, then of the second. `trans`: matrices of 16-bit elements are transposed on the way.

__device__ inline void ldmatrix(std::uint32_t (&to)[4], unsigned shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared)
               : "memory");
}
__device__ inline void ldmatrix(std::uint32_t (&to)[4], const void* row) {
  ldmatrix(to, static_cast<unsigned>(__cvta_generic_to_shared(row)));
}
__device__ inline void ldmatrix(std::uint32_t (&to)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ inline void ldmatrix_trans(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline void stmatrix(void* row, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(row))),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ inline void stmatrix(void* row, const std::uint32_t (&from)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(row))),
               "r"(from[0]), "r"(from[1])
               : "memory");
}
__device__ inline void stmatrix_trans(void* row, const std::uint32_t (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(row))),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}
#endif

}  // namespace lenslet::cuda
