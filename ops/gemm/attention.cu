// softmax(scale Q K^T + bias) V of each head without its scores in memory: keys come in blocks, and a row's maximum and
// sum are corrected from block to block (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao
// et al., "FlashAttention", 2022).
//
// Here the choice among them, and rows that are no multiples of 16 bytes and heads of many channels; float32:
// attention_tiles.cu; 16 bits: attention_tma.cu, attention_wgmma.cu, attention_mma.cu. Between channels:
// channel_attention.cu.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/gemm/attention_call.cuh"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {
namespace {

// A warp has four queries, and a block of keys one key a lane.

constexpr int row_warps = 4, rows_a_warp = 4, row_threads = row_warps * warp_threads;

/// to [tokens][stride] = `count` rows of `channels`, and zeros behind them.
template <typename T>
__device__ void widen_rows(float* to, int stride, const T* from, std::int64_t token, const std::int32_t* table,
                           int first, int tokens, int count, int channels) {
  for (int i = static_cast<int>(threadIdx.x); i < tokens * stride; i += row_threads) {
    const int row = i / stride, c = i % stride;
    to[i] = first + row < count && c < channels ? loaded(from[row_of(table, first + row) * token + c]) : 0.0F;
  }
}

/// Shared memory: Q [16][d], K [32][d + 4], V [32][e], powers [warps][32][4], with d and e rounded up to 4 and 32.
template <typename T, int across>
__global__ void __launch_bounds__(row_threads)
    attention_rows(const T* q, const T* k, const T* v, const T* bias, T* y, const AttentionCall call) {
  wait_for_previous();
  extern __shared__ float4 shared[];
  const int d = (call.head_size + 3) / 4 * 4;
  constexpr int e = across * warp_threads, k_extra = 4;
  float* const q_rows = reinterpret_cast<float*>(shared);
  float* const k_rows = q_rows + row_warps * rows_a_warp * d;
  float* const v_rows = k_rows + warp_threads * (d + k_extra);
  const Place place(call);
  const int warp = static_cast<int>(threadIdx.x) / warp_threads, lane = static_cast<int>(threadIdx.x) % warp_threads;
  auto* const powers = reinterpret_cast<float4*>(v_rows + warp_threads * e) + warp * warp_threads;
  const int first = place.block * row_warps * rows_a_warp;
  const std::int32_t* const table = place.table;
  const T *const k_first = k + place.of(call.k), *const v_first = v + place.of(call.v);
  widen_rows(q_rows, d, q + place.of(call.q), call.q.token, table, first, row_warps * rows_a_warp, call.queries,
             call.head_size);
  float most[rows_a_warp], sum[rows_a_warp] = {}, held[rows_a_warp][across] = {}, scale[rows_a_warp];
  for (float& m : most) m = -INFINITY;
  for (float& s : scale) s = place.scale(call);
  if (call.epsilon > 0) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < rows_a_warp; ++r) {
      float squares = 0;
      for (int c = lane; c < d; c += warp_threads) {
        const float a = q_rows[(warp * rows_a_warp + r) * d + c];
        squares = fmaf(a, a, squares);
      }
      for (int mask = 1; mask < warp_threads; mask *= 2) squares += shuffle_xor(squares, mask);
      scale[r] *= inverse_norm(squares, call);
    }
  }
  for (int key = 0; key < call.keys; key += warp_threads) {
    __syncthreads();
    widen_rows(k_rows, d + k_extra, k_first, call.k.token, table, key, warp_threads, call.keys, call.head_size);
    widen_rows(v_rows, e, v_first, call.v.token, table, key, warp_threads, call.keys, call.value_size);
    __syncthreads();
    float score[rows_a_warp] = {};
    const auto* const mine = reinterpret_cast<const float4*>(k_rows + lane * (d + k_extra));
    for (int c = 0; c < d / 4; ++c) {
      const float4 b = mine[c];
#pragma unroll
      for (int r = 0; r < rows_a_warp; ++r) {
        const float4 a = reinterpret_cast<const float4*>(q_rows + (warp * rows_a_warp + r) * d)[c];
        score[r] = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, score[r]))));
      }
    }
    float of_key = 1;
    if (call.epsilon > 0) {
      float squares = 0;
      for (int c = 0; c < d / 4; ++c) {
        const float4 b = mine[c];
        squares = fmaf(b.x, b.x, fmaf(b.y, b.y, fmaf(b.z, b.z, fmaf(b.w, b.w, squares))));
      }
      of_key = inverse_norm(squares, call);
    }
    float power[rows_a_warp];
#pragma unroll
    for (int r = 0; r < rows_a_warp; ++r) {
      const int query = min(first + warp * rows_a_warp + r, call.queries - 1);
      float s = -INFINITY;
      if (key + lane < call.keys) {
        s = score[r] * scale[r] * of_key;
        if (call.bias_n > 0) s = fmaf(loaded(bias[place.of_bias(call, query) + key + lane]), log2_e, s);
      }
      float top = s;
      for (int mask = 1; mask < warp_threads; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
      top = fmaxf(top, most[r]);
      const float base = top == -INFINITY ? 0 : top, grown = exp2f(most[r] - base);
      power[r] = exp2f(s - base);
      float total = power[r];
      for (int mask = 1; mask < warp_threads; mask *= 2) total += shuffle_xor(total, mask);
      sum[r] = fmaf(sum[r], grown, total);
      most[r] = top;
#pragma unroll
      for (int j = 0; j < across; ++j) held[r][j] *= grown;
    }
    powers[lane] = float4{power[0], power[1], power[2], power[3]};
    __syncwarp();
    for (int i = 0; i < warp_threads; ++i) {
      const float4 p = powers[i];
#pragma unroll
      for (int j = 0; j < across; ++j) {
        const float value = v_rows[i * e + j * warp_threads + lane];
        held[0][j] = fmaf(p.x, value, held[0][j]);
        held[1][j] = fmaf(p.y, value, held[1][j]);
        held[2][j] = fmaf(p.z, value, held[2][j]);
        held[3][j] = fmaf(p.w, value, held[3][j]);
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int r = 0; r < rows_a_warp; ++r) {
    const int query = first + warp * rows_a_warp + r;
    if (query >= call.queries) continue;
    T* const row = y + place.of(call.y) + row_of(table, query) * call.y.token;
    const float inverse = sum[r] == 0 ? 0 : 1 / sum[r];
#pragma unroll
    for (int j = 0; j < across; ++j)
      if (j * warp_threads + lane < call.value_size) row[j * warp_threads + lane] = as_stored<T>(held[r][j] * inverse);
  }
}

template <typename T>
void start(const Context& context, const AttentionProblem& p, AttentionCall call, const T* q, const T* k, const T* v,
           const T* bias, T* y) {
  const auto with_blocks = [&](int queries) {
    call.blocks = (call.queries + queries - 1) / queries;
    return dim3(static_cast<unsigned>(p.n * p.heads * call.blocks));
  };
  const auto d = static_cast<std::size_t>((p.head_size + 3) / 4 * 4);
  const auto launched = [&](auto kernel, std::size_t e) {
    const std::size_t floats =
        row_warps * rows_a_warp * d + warp_threads * (d + 4) + warp_threads * e + row_threads * std::size_t{4};
    allow_shared_bytes(kernel, floats * sizeof(float));
    launch(context, kernel, with_blocks(row_warps * rows_a_warp), dim3(row_threads), floats * sizeof(float), q, k, v,
           bias, y, call);
  };
  if constexpr (!is_half<T>) {
    if (p.value_size <= 32) return launched(attention_rows<T, 1>, 32);
    if (p.value_size <= 64) return launched(attention_rows<T, 2>, 64);
    if (p.value_size <= 128) return launched(attention_rows<T, 4>, 128);
  }
  launched(attention_rows<T, 8>, 256);
}

}  // namespace

void attention(const Context& context, const AttentionProblem& p, const AttentionMeans& means, DType dtype,
               const void* q, const void* k, const void* v, const AttentionBias& prepared, const std::int32_t* rows,
               void* y) {
  const void* const bias = prepared.data;
  if (p.n == 0 || p.heads == 0 || p.queries == 0 || p.value_size == 0) return;
  AttentionCall call = call_of(p, rows);
  if (dtypes<HalfTypes>.contains(dtype) && on_tensor_cores(p)) {
    const auto quads = [](const AttentionOperand& operand, std::int64_t channels, const void* data) {
      return in_quads(operand, channels, static_cast<const Float16*>(data));
    };
    call.quads_qk = quads(p.q, p.head_size, q) && quads(p.k, p.head_size, k);
    call.quads_v = quads(p.v, p.value_size, v);
    call.quads_y = quads(p.y, p.value_size, y);
    call.bias_tiles = prepared.tiles;
    call.bias_pairs = p.keys % 2 == 0 && reinterpret_cast<std::uintptr_t>(bias) % 4 == 0;
    // Biases are where sums of products begin, and are scaled with them.
    for (float& scale : call.scales)
      if (std::abs(scale) < 1e-20F) scale = std::copysign(1e-20F, scale);
    if (!means.wgmma || !attention_wgmma(context, p, call, dtype, q, k, v, bias, y))
      attention_mma(context, p, call, dtype, q, k, v, bias, y);
    return;
  }
  const auto floats = [](const void* data) { return static_cast<const float*>(data); };
  if (dtype == DType::f32 && attention_tiles(context, p, call, means.tf32, floats(q), floats(k), floats(v),
                                             floats(bias), static_cast<float*>(y)))
    return;
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    start(context, p, call, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
          static_cast<const T*>(bias), static_cast<T*>(y));
  });
}

}  // namespace lenslet::cuda
