#pragma once
// wgmma, Hopper's warpgroup matrix multiply (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"; sm_90a). A
// warpgroup (128 threads, aligned to 128) multiplies 64 rows of A by n rows of B, 32 bytes of k at a time: 16 elements
// of 16 bits, or 8 of TF32. Operands are in shared memory as TMA writes them (base/cuda/tensor_map.h): rows of 128, 64
// or 32 bytes of k.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/cuda/tma.cuh"
#include "base/half.h"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// k of one instruction in bytes, for any T.
inline constexpr int wgmma_k_bytes = 32;

/// An operand's descriptor ("Matrix Descriptor Format"), in units of 16 bytes: address, stride between groups of 8
/// rows, and swizzle. `rows` is aligned to 8 rows; the leading offset is unused, as a row is all of k. Add a distance
/// to reach later k, or later rows in eights. The swizzle depends on the address alone, so an operand may begin at any
/// row of eight.
template <int row_bytes = 128>
__device__ inline std::uint64_t wgmma_operand(const void* rows, int group_rows = 8) {
  static_assert(row_bytes == 128 || row_bytes == 64 || row_bytes == 32);
  constexpr std::uint64_t leading = 1;
  constexpr std::uint64_t swizzle = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  const auto groups = static_cast<std::uint64_t>(group_rows * (row_bytes / 16));
  return ((shared_address(rows) & 0x3FFFFU) >> 4) | leading << 16 | groups << 32 | swizzle << 62;
}
/// The descriptor of the data `bytes` further on.
__device__ constexpr std::uint64_t wgmma_behind(int bytes) { return static_cast<std::uint64_t>(bytes / 16); }

/// Required before the first wgmma that reads registers written otherwise.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of all wgmma since the last commit.
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `groups` of the latest groups are in flight.
template <int groups>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
/// Keeps the compiler from reading or moving these registers across this point.
template <int count>
__device__ inline void wgmma_hold(float (&d)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define LENSLET_WGMMA_0_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LENSLET_WGMMA_0_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LENSLET_WGMMA_0_32                                                                               \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LENSLET_WGMMA_32_64                                                                              \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LENSLET_WGMMA_32_48 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LENSLET_WGMMA_64_128                                                                             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "   \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "     \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LENSLET_WGMMA_64_104                                                                             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "   \
  "%103"
#define LENSLET_WGMMA_8(i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define LENSLET_WGMMA_16(i) LENSLET_WGMMA_8(i), LENSLET_WGMMA_8(i + 8)
#define LENSLET_WGMMA_32(i) LENSLET_WGMMA_8(i), LENSLET_WGMMA_8(i + 8), LENSLET_WGMMA_8(i + 16), LENSLET_WGMMA_8(i + 24)
#define LENSLET_WGMMA_64(i) LENSLET_WGMMA_32(i), LENSLET_WGMMA_32(i + 32)
#define LENSLET_WGMMA_96 LENSLET_WGMMA_32(0), LENSLET_WGMMA_16(32)
#define LENSLET_WGMMA_208 LENSLET_WGMMA_64(0), LENSLET_WGMMA_32(64), LENSLET_WGMMA_8(96)
#define LENSLET_WGMMA_128 LENSLET_WGMMA_64(0), LENSLET_WGMMA_64(64)
#define LENSLET_WGMMA(n, form, transposed, names, registers, a_at, b_at, add_at)               \
  asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %" #add_at                            \
               ", 0;\n\t"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #n form " {" names "}, %" #a_at ", %" #b_at \
               ", add, 1, 1" transposed ";\n\t}"                                               \
               : registers                                                                     \
               : "l"(a), "l"(b), "r"(add))
#define LENSLET_WGMMA_OF(form, transposed)                                                                          \
  if constexpr (n == 16)                                                                                            \
    LENSLET_WGMMA(16, form, transposed, LENSLET_WGMMA_0_8, LENSLET_WGMMA_8(0), 8, 9, 10);                           \
  else if constexpr (n == 32)                                                                                       \
    LENSLET_WGMMA(32, form, transposed, LENSLET_WGMMA_0_16, LENSLET_WGMMA_16(0), 16, 17, 18);                       \
  else if constexpr (n == 64)                                                                                       \
    LENSLET_WGMMA(64, form, transposed, LENSLET_WGMMA_0_32, LENSLET_WGMMA_32(0), 32, 33, 34);                       \
  else if constexpr (n == 96)                                                                                       \
    LENSLET_WGMMA(96, form, transposed, LENSLET_WGMMA_0_32 ", " LENSLET_WGMMA_32_48, LENSLET_WGMMA_96, 48, 49, 50); \
  else if constexpr (n == 128)                                                                                      \
    LENSLET_WGMMA(128, form, transposed, LENSLET_WGMMA_0_32 ", " LENSLET_WGMMA_32_64, LENSLET_WGMMA_64(0), 64, 65,  \
                  66);                                                                                              \
  else if constexpr (n == 208)                                                                                      \
    LENSLET_WGMMA(208, form, transposed, LENSLET_WGMMA_0_32 ", " LENSLET_WGMMA_32_64 ", " LENSLET_WGMMA_64_104,     \
                  LENSLET_WGMMA_208, 104, 105, 106);                                                                \
  else                                                                                                              \
    LENSLET_WGMMA(256, form, transposed, LENSLET_WGMMA_0_32 ", " LENSLET_WGMMA_32_64 ", " LENSLET_WGMMA_64_128,     \
                  LENSLET_WGMMA_128, 128, 129, 130)

/// d = a * b, or d += a * b. T: Float16, BFloat16, or float as TF32, whose low bits are truncated. d[4*j + 2*i + e] of
/// thread t in warp w is row 16*w + t/4 + 8*i of A and row 8*j + 2*(t%4) + e of B. Asynchronous until wgmma_wait().
template <typename T, int n>
__device__ inline void wgmma(float (&d)[n / 2], std::uint64_t a, std::uint64_t b, int add) {
  static_assert(n == 16 || n == 32 || n == 64 || n == 96 || n == 128 || n == 208 || n == 256);
  if constexpr (std::is_same_v<T, Float16>) {
    LENSLET_WGMMA_OF("k16.f32.f16.f16", ", 0, 0");
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    LENSLET_WGMMA_OF("k16.f32.bf16.bf16", ", 0, 0");
  } else {
    static_assert(std::is_same_v<T, float>, "wgmma has no branch with the PTX form of T");
    LENSLET_WGMMA_OF("k8.f32.tf32.tf32", "");
  }
}

#define LENSLET_WGMMA_REGISTERS(n, form, transposed, names, registers, a0, a1, a2, a3, b_at)                    \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n form " {" names "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 \
               "}, %" #b_at ", 1, 1, 1" transposed ";"                                                          \
               : registers                                                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define LENSLET_WGMMA_REGISTERS_OF(form, transposed)                                                                 \
  if constexpr (n == 32)                                                                                             \
    LENSLET_WGMMA_REGISTERS(32, form, transposed, LENSLET_WGMMA_0_16, LENSLET_WGMMA_16(0), 16, 17, 18, 19, 20);      \
  else if constexpr (n == 64)                                                                                        \
    LENSLET_WGMMA_REGISTERS(64, form, transposed, LENSLET_WGMMA_0_32, LENSLET_WGMMA_32(0), 32, 33, 34, 35, 36);      \
  else                                                                                                               \
    LENSLET_WGMMA_REGISTERS(128, form, transposed, LENSLET_WGMMA_0_32 ", " LENSLET_WGMMA_32_64, LENSLET_WGMMA_64(0), \
                            64, 65, 66, 67, 68)

/// d += a * b with a in registers: thread t of warp w holds the words (row 16*w + t/4, word t%4), the one 8 rows below,
/// and the same two 4 words on. A word is two 16-bit elements or one of TF32. Do not overwrite them before
/// wgmma_wait(). `turned`: B is [k][n] (PTX ISA, "Strides", MN-major), of 16 bits, a row at least n elements;
/// eight rows of k make a group.
template <typename T, int n, bool turned = false>
__device__ inline void wgmma_of_registers(float (&d)[n / 2], const std::uint32_t (&a)[4], std::uint64_t b) {
  static_assert(n == 32 || n == 64 || n == 128);
  if constexpr (std::is_same_v<T, Float16> && turned) {
    LENSLET_WGMMA_REGISTERS_OF("k16.f32.f16.f16", ", 1");
  } else if constexpr (std::is_same_v<T, Float16>) {
    LENSLET_WGMMA_REGISTERS_OF("k16.f32.f16.f16", ", 0");
  } else if constexpr (std::is_same_v<T, BFloat16> && turned) {
    LENSLET_WGMMA_REGISTERS_OF("k16.f32.bf16.bf16", ", 1");
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    LENSLET_WGMMA_REGISTERS_OF("k16.f32.bf16.bf16", ", 0");
  } else {
    static_assert(std::is_same_v<T, float>, "wgmma has no branch with the PTX form of T");
    LENSLET_WGMMA_REGISTERS_OF("k8.f32.tf32.tf32", "");
  }
}

#undef LENSLET_WGMMA_REGISTERS_OF
#undef LENSLET_WGMMA_REGISTERS
#undef LENSLET_WGMMA_OF
#undef LENSLET_WGMMA
#undef LENSLET_WGMMA_128
#undef LENSLET_WGMMA_208
#undef LENSLET_WGMMA_96
#undef LENSLET_WGMMA_64
#undef LENSLET_WGMMA_32
#undef LENSLET_WGMMA_16
#undef LENSLET_WGMMA_8
#undef LENSLET_WGMMA_64_104
#undef LENSLET_WGMMA_64_128
#undef LENSLET_WGMMA_32_64
#undef LENSLET_WGMMA_32_48
#undef LENSLET_WGMMA_0_32
#undef LENSLET_WGMMA_0_16
#undef LENSLET_WGMMA_0_8

/// setmaxnreg: the registers per thread of this warpgroup from here on, a multiple of 8. The block's total stays as at
/// launch; waits until other warpgroups have released enough.
template <int registers>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#endif

}  // namespace lenslet::cuda
