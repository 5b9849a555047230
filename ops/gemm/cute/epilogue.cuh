#pragma once
// The epilogue, in fp32: four neighbours of a row at a time, rounded once at the end.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ops/gemm/cute/tiles.h"

namespace lenslet::cuda {

/// 8 bytes of a 16-bit type.
template <typename T>
struct alignas(8) HalfVector {
  T x, y, z, w;
};

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(__half x) { return __half2float(x); }
__device__ inline float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline void from_f32(float x, float& to) { to = x; }
__device__ inline void from_f32(float x, __half& to) { to = __float2half_rn(x); }
__device__ inline void from_f32(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

template <typename T, typename Vector>
__device__ inline void store_row(const CuteEpilogue& e, float4 acc, float4 c, std::int64_t matrix, int i, int j) {
  const std::int64_t at = (matrix * e.m + i) * e.n + j;
  T* const y = static_cast<T*>(e.y) + at;
  const T* const residual = e.residual == nullptr ? nullptr : static_cast<const T*>(e.residual) + at;
  float4 value{e.alpha * acc.x, e.alpha * acc.y, e.alpha * acc.z, e.alpha * acc.w};
  const int count = min(4, e.n - j);
  float* const values = &value.x;
  if (e.c != nullptr) {
    value.x += e.beta * c.x;
    value.y += e.beta * c.y;
    value.z += e.beta * c.z;
    value.w += e.beta * c.w;
  }
  if (residual != nullptr) {
    if (e.vectors) {
      const Vector r = *reinterpret_cast<const Vector*>(residual);
      value.x += to_f32(r.x);
      value.y += to_f32(r.y);
      value.z += to_f32(r.z);
      value.w += to_f32(r.w);
    } else {
#pragma unroll
      for (int t = 0; t < 4; ++t)
        if (t < count) values[t] += to_f32(residual[t]);
    }
  }
  value = e.activation(value);
  Vector rounded;
  from_f32(value.x, rounded.x);
  from_f32(value.y, rounded.y);
  from_f32(value.z, rounded.z);
  from_f32(value.w, rounded.w);
  if (e.vectors) {
    *reinterpret_cast<Vector*>(y) = rounded;
  } else {
    y[0] = rounded.x;
    if (count > 1) y[1] = rounded.y;
    if (count > 2) y[2] = rounded.z;
    if (count > 3) y[3] = rounded.w;
  }
}

__device__ inline float4 CuteEpilogue::load_c(int i, int j) const {
  float4 values{};
  if (c == nullptr || i >= m) return values;
  const float* const from = c + i * c_row;
  if (j < n) values.x = from[j * c_col];
  if (j + 1 < n) values.y = from[(j + 1) * c_col];
  if (j + 2 < n) values.z = from[(j + 2) * c_col];
  if (j + 3 < n) values.w = from[(j + 3) * c_col];
  return values;
}

__device__ inline void CuteEpilogue::store(float4 acc, float4 added, std::int64_t matrix, int i, int j) const {
  if (i >= m || j >= n) return;
  switch (type) {
    case Type::f32:
      return store_row<float, float4>(*this, acc, added, matrix, i, j);
    case Type::f16:
      return store_row<__half, HalfVector<__half>>(*this, acc, added, matrix, i, j);
    case Type::bf16:
      return store_row<__nv_bfloat16, HalfVector<__nv_bfloat16>>(*this, acc, added, matrix, i, j);
  }
}

__device__ inline void CuteEpilogue::store(float4 acc, std::int64_t matrix, int i, int j) const {
  store(acc, load_c(i, j), matrix, i, j);
}

}  // namespace lenslet::cuda
