#pragma once
// wgmma with N = 112, used by wgmma_halo_split_k alone; base/cuda/wgmma.cuh has the others.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/half.h"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define LENSLET_8(i)                                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define LENSLET_WGMMA_112(form, transposed)                                                                         \
  asm volatile(                                                                                                     \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %58, 0;\n\t"                                                        \
      "wgmma.mma_async.sync.aligned.m64n112" form                                                                   \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
      "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "   \
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55}, %56, %57, add, 1, 1" transposed ";\n\t}"        \
      : LENSLET_8(0), LENSLET_8(8), LENSLET_8(16), LENSLET_8(24), LENSLET_8(32), LENSLET_8(40), LENSLET_8(48)       \
      : "l"(a), "l"(b), "r"(add))

/// As wgmma().
template <typename T>
__device__ inline void wgmma_112(float (&d)[56], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, Float16>) {
    LENSLET_WGMMA_112("k16.f32.f16.f16", ", 0, 0");
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    LENSLET_WGMMA_112("k16.f32.bf16.bf16", ", 0, 0");
  } else {
    static_assert(std::is_same_v<T, float>, "wgmma has no branch with the PTX form of T");
    LENSLET_WGMMA_112("k8.f32.tf32.tf32", "");
  }
}

#undef LENSLET_WGMMA_112
#undef LENSLET_8

#endif

}  // namespace lenslet::cuda
