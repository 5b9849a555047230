#pragma once
// Four floats at once: 16-byte loads and stores, arithmetic element by element.

#include <cuda_runtime.h>

#include <cstdint>

namespace lenslet::cuda {

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float4 operator/(float4 a, float b) { return make_float4(a.x / b, a.y / b, a.z / b, a.w / b); }

/// Can arrays at these addresses be read and written as float4?
template <typename... Pointers>
bool quad_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % sizeof(float4) == 0) && ...);
}

}  // namespace lenslet::cuda
