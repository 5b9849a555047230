#pragma once
// Predicated loads and stores of adjacent floats, which nvcc neither splits nor turns into branches.

#include <cuda_runtime.h>

namespace lenslet::cuda {

// V adjacent floats, aligned to their size, in one instruction (nvcc 13 stores float2 and float4 one by one here).
// Loads give zeros unless `exists`. Predicated in PTX: an `if` may become a branch around each load, which serialises
// them.
__device__ inline void load(const float* from, bool exists, float (&to)[1]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %2, 0; mov.f32 %0, 0f00000000;\n"
      "@p ld.global.f32 %0, [%1];}"
      : "=&f"(to[0])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void load(const float* from, bool exists, float (&to)[2]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %3, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000;\n"
      "@p ld.global.v2.f32 {%0, %1}, [%2];}"
      : "=&f"(to[0]), "=&f"(to[1])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void load(const float* from, bool exists, float (&to)[4]) {
  asm volatile(
      "{.reg .pred p; setp.ne.s32 p, %5, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000;\n"
      "mov.f32 %2, 0f00000000; mov.f32 %3, 0f00000000;\n"
      "@p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];}"
      : "=&f"(to[0]), "=&f"(to[1]), "=&f"(to[2]), "=&f"(to[3])
      : "l"(from), "r"(static_cast<int>(exists))
      : "memory");
}
__device__ inline void store(float* to, const float (&from)[1]) { *to = from[0]; }
__device__ inline void store(float* to, const float (&from)[2]) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(from[0]), "f"(from[1]) : "memory");
}
__device__ inline void store(float* to, const float (&from)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]),
               "f"(from[3])
               : "memory");
}

}  // namespace lenslet::cuda
