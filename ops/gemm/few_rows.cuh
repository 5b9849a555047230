#pragma once
// Few rows: y[i][j] = dot(a[i], b[j]), b [n][k], for each element type. Bound by reading b, so b is streamed once and
// L1 is left to A. A warp processes `columns` rows of b (outputs j) at once: as many loads in flight, and fewer reads
// of A. The warps of a block split k `split_k` ways, more when there are too few columns for all multiprocessors.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/cuda/launch.h"
#include "ops/core/activation.cuh"
#include "ops/gemm/gemm_cuda.h"
#include "ops/gemm/packed_weights.h"

namespace lenslet::cuda {

/// The epilogue.
struct DeviceEpilogue {
  float alpha, beta;
  const float* c;
  std::int64_t c_row, c_col;
  DeviceActivation activation;

  bool none() const { return alpha == 1 && c == nullptr && activation.kind == Activation::Kind::none; }

  __device__ float operator()(float sum, std::int64_t i, std::int64_t j) const {
    float value = alpha * sum;
    if (c != nullptr) value += beta * c[i * c_row + j * c_col];
    return activation(value);
  }
};

/// 8 bytes of a 16-bit type.
template <typename T>
struct alignas(8) Four {
  T values[4];
};

/// The elements of a load, and their dot product with those of another.
template <typename Vector>
struct Lanes;
template <>
struct Lanes<float4> {
  static constexpr int count = 4;
  __device__ static float fma(float4 x, float4 y, float sum) {
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    return fmaf(x.w, y.w, sum);
  }
  template <typename T>
  __device__ static float fma(const Four<T>& x, float4 y, float sum) {
    return fma(float4{static_cast<float>(x.values[0]), static_cast<float>(x.values[1]), static_cast<float>(x.values[2]),
                      static_cast<float>(x.values[3])},
               y, sum);
  }
};
template <>
struct Lanes<float> {
  static constexpr int count = 1;
  __device__ static float fma(float x, float y, float sum) { return fmaf(x, y, sum); }
};

/// 16 bytes of a 16-bit type.
template <typename T>
struct alignas(16) Eight {
  T values[8];
};
template <typename T>
struct Lanes<Eight<T>> {
  static constexpr int count = 8;
  __device__ static float fma(const Eight<T>& x, const Eight<T>& y, float sum) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(static_cast<float>(x.values[i]), static_cast<float>(y.values[i]), sum);
    return sum;
  }
};
template <typename T>
struct One {
  static constexpr int count = 1;
  __device__ static float fma(T x, T y, float sum) { return fmaf(static_cast<float>(x), static_cast<float>(y), sum); }
};
template <>
struct Lanes<__half> : One<__half> {};
template <>
struct Lanes<__nv_bfloat16> : One<__nv_bfloat16> {};

/// Eight floats and a lane's share of a chunk of 20-bit weights (packed_weights.h): eight weights in two places of the
/// chunk. Its size is the lane's bytes, so that lanes and chunks count like other vectors.
struct EightFloats {
  float4 low, high;
};
struct PackedEight {
  std::uint32_t words[packed_lane_bytes / 4];
};
template <>
struct Lanes<PackedEight> {
  static constexpr int count = packed_lane_weights;
  __device__ static float weight(const PackedEight& x, int i) {
    const std::uint32_t word = x.words[i / 2], upper = i % 2 == 0 ? word << 16 : word & 0xFFFF0000U;
    const std::uint32_t lower = x.words[4], moved = i < 3 ? lower << (12 - 4 * i) : lower >> (4 * i - 12);
    return __uint_as_float(upper | (moved & 0xF000U));
  }
  __device__ static float fma(const EightFloats& x, const PackedEight& y, float sum) {
    const float values[] = {x.low.x, x.low.y, x.low.z, x.low.w, x.high.x, x.high.y, x.high.z, x.high.w};
#pragma unroll
    for (int i = 0; i < count; ++i) sum = fmaf(values[i], weight(y, i), sum);
    return sum;
  }
};

/// A streaming load: read once, not kept in caches.
template <typename Vector>
__device__ inline Vector load_stream(const Vector* from) {
  return __ldcs(from);
}
template <typename T>
__device__ inline Eight<T> load_stream(const Eight<T>* from) {
  const int4 bits = __ldcs(reinterpret_cast<const int4*>(from));
  return reinterpret_cast<const Eight<T>&>(bits);
}
/// `from` counts lanes: the calling thread's in its chunk.
__device__ inline PackedEight load_stream(const PackedEight* from) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const chunk = reinterpret_cast<const unsigned char*>(from) - lane * packed_lane_bytes;
  const int4 upper = __ldcs(reinterpret_cast<const int4*>(chunk) + lane);
  const int lower = __ldcs(reinterpret_cast<const int*>(chunk + packed_chunk_weights * 2) + lane);
  const auto word = [](int value) { return static_cast<std::uint32_t>(value); };
  return {{word(upper.x), word(upper.y), word(upper.z), word(upper.w), word(lower)}};
}

/// `rows`: at least m. Y: the type of y. b_known: b was on the device before the network ran, so its first elements are
/// read before the previous kernel ends. If Vector has several elements, k, lda and ldb are multiples of them and both
/// pointers are 16-byte aligned. AVector has as many elements, perhaps of another type.
template <int rows, typename Vector, typename Element, typename Y, typename AVector = Vector,
          typename AElement = Element>
__global__ void __launch_bounds__(32 * few_rows_warps)
    few_rows_kernel(const AElement* a, std::int64_t lda, const Element* b, std::int64_t ldb, Y* y, int m, int n, int k,
                    int split_k, int b_known, DeviceEpilogue epilogue) {
  constexpr int warps = few_rows_warps, columns = few_rows_columns;
  __shared__ float parts[warps][rows * columns];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column_groups = warps / split_k;
  const int first = (static_cast<int>(blockIdx.x) * column_groups + warp / split_k) * columns;

  // Out-of-range warps recompute the last column (or row of A) and do not store it.
  const Vector* b_rows[columns];
  const AVector* a_rows[rows];
#pragma unroll
  for (int j = 0; j < columns; ++j) b_rows[j] = reinterpret_cast<const Vector*>(b + min(first + j, n - 1) * ldb);
#pragma unroll
  for (int i = 0; i < rows; ++i) a_rows[i] = reinterpret_cast<const AVector*>(a + min(i, m - 1) * lda);

  float acc[rows][columns] = {};
  const int count = k / Lanes<Vector>::count, step = 32 * split_k;
  // Loads all of b before the first use: otherwise the compiler puts a branch between the steps of an unrolled loop,
  // and only one step's loads are in flight.
  constexpr int ahead = rows <= 2 ? 2 : 1;
  Vector weights[ahead][columns];
  const auto load = [&]<int steps>(int at) {
#pragma unroll
    for (int t = 0; t < steps; ++t)
#pragma unroll
      for (int j = 0; j < columns; ++j) weights[t][j] = load_stream(b_rows[j] + at + t * step);
  };
  const auto add = [&]<int steps>(int at) {
#pragma unroll
    for (int t = 0; t < steps; ++t)
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const AVector values = a_rows[i][at + t * step];
#pragma unroll
        for (int j = 0; j < columns; ++j) acc[i][j] = Lanes<Vector>::fma(values, weights[t][j], acc[i][j]);
      }
  };
  int e = warp % split_k * 32 + lane;
  const auto whole = [&] { return e + (ahead - 1) * step < count; };
  const bool early = b_known != 0 && whole();
  if (early) load.template operator()<ahead>(e);
  wait_for_previous();
  let_next_start();
  if (early) {
    add.template operator()<ahead>(e);
    e += ahead * step;
  }
  for (; whole(); e += ahead * step) {
    load.template operator()<ahead>(e);
    add.template operator()<ahead>(e);
  }
  if (ahead > 1 && e < count) {
    load.template operator()<1>(e);
    add.template operator()<1>(e);
  }

#pragma unroll
  for (int i = 0; i < rows; ++i)
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      float sum = acc[i][j];
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
      if (lane == 0) parts[warp][i * columns + j] = sum;
    }
  __syncthreads();

  const int at = static_cast<int>(threadIdx.x), group = at / (rows * columns), part = at % (rows * columns);
  if (group >= column_groups) return;
  float sum = 0;
  for (int w = 0; w < split_k; ++w) sum += parts[group * split_k + w][part];
  const int i = part / columns, j = (static_cast<int>(blockIdx.x) * column_groups + group) * columns + part % columns;
  if (i < m && j < n) y[static_cast<std::int64_t>(i) * n + j] = Y(epilogue(sum, i, j));
}

/// launch_rows.template operator()<rows>() with the smallest instantiated `rows` that is at least m.
template <typename Launch>
void with_few_rows(std::int64_t m, const Launch& launch_rows) {
  if (m == 1)
    launch_rows.template operator()<1>();
  else if (m == 2)
    launch_rows.template operator()<2>();
  else if (m <= 4)
    launch_rows.template operator()<4>();
  else
    launch_rows.template operator()<most_few_rows>();
}

}  // namespace lenslet::cuda
