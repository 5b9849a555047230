// softmax(scale Q K^T + bias) V of each head without its scores in memory: keys come in blocks, and a row's maximum and
// sum are corrected from block to block (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao
// et al., "FlashAttention", 2022).
#include <algorithm>
#include <cmath>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/warp.cuh"
#include "base/dtypes.h"
#include "ops/core/approximate_math.cuh"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr float log2_e = 1.44269504F;

/// AttentionProblem as kernels take it; scores are in units of log2, so that powers are of 2.
struct Call {
  AttentionOperand q, k, v, y;
  int heads, queries, keys, head_size, value_size;
  int blocks;  ///< of queries
  int bias_n, bias_heads, bias_queries;
  int rows_n;
  const std::int32_t* rows;        ///< null where rows_n is 0
  float scales[most_head_scales];  ///< the first for all heads, unless each has its own
  bool scales_by_head;
  float epsilon;           ///< of the norms of rows of Q and K; 0: they are not normalised
  bool quads_qk, quads_v;  ///< rows of Q and K, and of V, are multiples of 16 bytes at multiples of 16 bytes
};

/// A block's problem, head and first query.
struct Place {
  std::int64_t n;
  int head, block;

  __device__ explicit Place(const Call& call)
      : n(blockIdx.x / static_cast<unsigned>(call.blocks) / static_cast<unsigned>(call.heads)),
        head(static_cast<int>(blockIdx.x / static_cast<unsigned>(call.blocks) % static_cast<unsigned>(call.heads))),
        block(static_cast<int>(blockIdx.x % static_cast<unsigned>(call.blocks))) {}
  /// Token 0; with a table row 0 of its images.
  __device__ std::int64_t of(const AttentionOperand& operand, const Call& call) const {
    const std::int64_t problem = call.rows_n == 0 ? n : n / call.rows_n * call.rows_n;
    return operand.offset + problem * operand.batch + head * operand.head;
  }
  /// The table of this problem, or null.
  __device__ const std::int32_t* table(const Call& call) const {
    return call.rows_n == 0 ? nullptr : call.rows + n % call.rows_n * call.queries;
  }
  __device__ float scale(const Call& call) const { return call.scales[call.scales_by_head ? head : 0]; }
  /// Of the bias's row `query`.
  __device__ std::int64_t of_bias(const Call& call, int query) const {
    const std::int64_t plane = n % call.bias_n * call.bias_heads + (call.bias_heads == 1 ? 0 : head);
    return (plane * call.bias_queries + (call.bias_queries == 1 ? 0 : query)) * call.keys;
  }
};

/// The row of token `token`.
__device__ std::int64_t row_of(const std::int32_t* table, int token) {
  return table == nullptr ? token : __ldg(table + token);
}

__device__ float inverse_norm(float squares, const Call& call) { return 1 / fmaxf(sqrtf(squares), call.epsilon); }

// ---- Any type, in float32: a warp has four queries, and a block of keys one key a lane.

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
    attention_rows(const T* q, const T* k, const T* v, const T* bias, T* y, const Call call) {
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
  const std::int32_t* const table = place.table(call);
  widen_rows(q_rows, d, q + place.of(call.q, call), call.q.token, table, first, row_warps * rows_a_warp, call.queries,
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
    widen_rows(k_rows, d + k_extra, k + place.of(call.k, call), call.k.token, table, key, warp_threads, call.keys,
               call.head_size);
    widen_rows(v_rows, e, v + place.of(call.v, call), call.v.token, table, key, warp_threads, call.keys,
               call.value_size);
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
    T* const row = y + place.of(call.y, call) + row_of(table, query) * call.y.token;
    const float inverse = sum[r] == 0 ? 0 : 1 / sum[r];
#pragma unroll
    for (int j = 0; j < across; ++j)
      if (j * warp_threads + lane < call.value_size) row[j * warp_threads + lane] = as_stored<T>(held[r][j] * inverse);
  }
}

// ---- 16 bits, on tensor cores: a warp has 16 queries, and 64 keys at a time. Lanes as in base/cuda/mma.cuh.

constexpr int tile_keys = 64, tile_queries = 64, mma_threads = 128;

template <typename T>
__device__ void add_squares(float& sum, std::uint32_t pair) {
  const float2 two = widened_pair<T>(pair);
  sum = fmaf(two.x, two.x, fmaf(two.y, two.y, sum));
}

/// to [64][width + 8] = rows from `first` on, and zeros behind them: columns of 16 bits, 16 bytes apart in banks.
template <int width, typename T>
__device__ void load_rows(T* to, const T* from, std::int64_t token, const std::int32_t* table, int first, int count,
                          int channels, bool quads) {
  constexpr int packs = width / 8;
#pragma unroll
  for (int j = 0; j < tile_keys * packs / mma_threads; ++j) {
    const int i = j * mma_threads + static_cast<int>(threadIdx.x);
    const int row = i / packs, c = i % packs * 8;
    EightHalves<T> eight{};
    if (first + row < count) {
      const T* const x = from + row_of(table, first + row) * token + c;
      if (quads && c < channels) {
        eight = *reinterpret_cast<const EightHalves<T>*>(x);
      } else {
        for (int l = 0; l < 8; ++l)
          if (c + l < channels) eight.pairs[l / 2] |= std::uint32_t{x[l].bits} << 16 * (l % 2);
      }
    }
    *reinterpret_cast<EightHalves<T>*>(to + row * (width + 8) + c) = eight;
  }
}

/// to [64] = the inverse norms of rows that load_rows has written: each thread reads its own quads.
template <int width, typename T>
__device__ void inverse_norms(float* to, const T* rows, const Call& call) {
  constexpr int packs = width / 8;
#pragma unroll
  for (int j = 0; j < tile_keys * packs / mma_threads; ++j) {
    const int i = j * mma_threads + static_cast<int>(threadIdx.x);
    const auto& eight = *reinterpret_cast<const EightHalves<T>*>(rows + i / packs * (width + 8) + i % packs * 8);
    float squares = 0;
    for (const std::uint32_t pair : eight.pairs) add_squares<T>(squares, pair);
    for (int mask = 1; mask < packs; mask *= 2) squares += shuffle_xor(squares, mask);
    if (i % packs == 0) to[i / packs] = inverse_norm(squares, call);
  }
}

/// Channels c and c + 1 of row `query`, at `row`; 0 where there are none.
template <typename T>
__device__ std::uint32_t pair_at(const T* row, int query, int c, const Call& call) {
  if (query >= call.queries || c >= call.head_size) return 0;
  const T* const x = row + c;
  if (call.quads_qk) return *reinterpret_cast<const std::uint32_t*>(x);
  return std::uint32_t{x[0].bits} | (c + 1 < call.head_size ? std::uint32_t{x[1].bits} << 16 : 0);
}

/// Channels are at most `width`: 32, 64 or 128. `unit`: rows of Q and K are divided by their norms. Where
/// 128 registers nearly suffice, a multiprocessor holds 4 blocks; 0 is no bound.
template <typename T, int width, bool unit>
__global__ void __launch_bounds__(mma_threads, width == 32 && !unit ? 4 : 0)
    attention_mma(const T* q, const T* k, const T* v, const T* bias, T* y, const Call call) {
  constexpr int stride = width + 8, steps = width / 16, tiles = tile_keys / 8;
  __shared__ alignas(16) T k_rows[tile_keys * stride];
  __shared__ alignas(16) T v_rows[tile_keys * stride];
  __shared__ float of_keys[unit ? tile_keys : 1];
  const Place place(call);
  const int warp = static_cast<int>(threadIdx.x) / warp_threads, lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int group = lane / 4, pair = lane % 4 * 2;
  const int first = place.block * tile_queries, row = first + warp * 16 + group;  // and row + 8
  const std::int32_t* const table = place.table(call);
  std::int64_t rows[2];  // of this lane's two queries
#pragma unroll
  for (int half = 0; half < 2; ++half) rows[half] = row_of(table, min(row + half * 8, call.queries - 1));
  wait_for_previous();  // the table is a constant, and no earlier step's work
  std::uint32_t left[steps][4];
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      left[step][i] = pair_at(q + place.of(call.q, call) + rows[i % 2] * call.q.token, row + i % 2 * 8,
                              step * 16 + i / 2 * 8 + pair, call);
  float scale[2] = {place.scale(call), place.scale(call)};
  if constexpr (unit)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float squares = 0;
#pragma unroll
      for (int step = 0; step < steps; ++step)
        add_squares<T>(squares, left[step][half]), add_squares<T>(squares, left[step][half + 2]);
      for (int mask = 1; mask < 4; mask *= 2) squares += shuffle_xor(squares, mask);
      scale[half] *= inverse_norm(squares, call);
    }
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {}, held[width / 8][4] = {};
  for (int key = 0; key < call.keys; key += tile_keys) {
    const int here = min(call.keys - key, tile_keys);
    // Before the barrier, and without branches: all loads of a block are in flight at once.
    T extra[tiles][4] = {};
    if (call.bias_n > 0)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const T* const plus = bias + place.of_bias(call, min(row + half * 8, call.queries - 1)) + key;
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
          for (int j = 0; j < 2; ++j) extra[tile][half * 2 + j] = plus[min(tile * 8 + pair + j, here - 1)];
      }
    __syncthreads();
    load_rows<width>(k_rows, k + place.of(call.k, call), call.k.token, table, key, call.keys, call.head_size,
                     call.quads_qk);
    load_rows<width>(v_rows, v + place.of(call.v, call), call.v.token, table, key, call.keys, call.value_size,
                     call.quads_v);
    if constexpr (unit) inverse_norms<width>(of_keys, k_rows, call);
    __syncthreads();
    float score[tiles][4];
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      for (float& s : score[tile]) s = 0;
      if (tile * 8 >= here) continue;
#pragma unroll
      for (int step = 0; step < steps; step += 2) {
        std::uint32_t right[4];  // two steps of K
        ldmatrix(right, k_rows + (tile * 8 + lane % 8) * stride + step * 16 + lane / 8 * 8);
        mma<T>(score[tile], left[step], right[0], right[1]);
        mma<T>(score[tile], left[step + 1], right[2], right[3]);
      }
    }
    if constexpr (unit)
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
        for (int j = 0; j < 4; ++j) score[tile][j] *= of_keys[tile * 8 + pair + j % 2];
    float top[2] = {most[0], most[1]};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = score[tile][half * 2 + j];
          s = fmaf(widened(extra[tile][half * 2 + j]), log2_e, s * scale[half]);
          if (tile * 8 + pair + j >= here) s = -INFINITY;
          top[half] = fmaxf(top[half], s);
        }
      for (int mask = 1; mask < 4; mask *= 2) top[half] = fmaxf(top[half], shuffle_xor(top[half], mask));
      const float base = top[half] == -INFINITY ? 0 : top[half], grown = approximate_exp2(most[half] - base);
      most[half] = top[half];
      sum[half] *= grown;
#pragma unroll
      for (auto& tile : held) tile[half * 2] *= grown, tile[half * 2 + 1] *= grown;
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& s = score[tile][half * 2 + j];
          s = approximate_exp2(s - base);
          sum[half] += s;
        }
    }
#pragma unroll
    for (int tile = 0; tile < tiles; tile += 2) {
      if (tile * 8 >= here) continue;
      const auto two = [&](float a, float b) { return paired(narrowed<T>(a), narrowed<T>(b)); };
      const std::uint32_t powers[4] = {two(score[tile][0], score[tile][1]), two(score[tile][2], score[tile][3]),
                                       two(score[tile + 1][0], score[tile + 1][1]),
                                       two(score[tile + 1][2], score[tile + 1][3])};
#pragma unroll
      for (int c = 0; c < width / 8; c += 2) {
        std::uint32_t right[4];
        ldmatrix_trans(right, v_rows + (tile * 8 + lane % 16) * stride + c * 8 + lane / 16 * 8);
        mma<T>(held[c], powers, right[0], right[1]);
        mma<T>(held[c + 1], powers, right[2], right[3]);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    for (int mask = 1; mask < 4; mask *= 2) sum[half] += shuffle_xor(sum[half], mask);
    if (row + half * 8 >= call.queries) continue;
    const float inverse = sum[half] == 0 ? 0 : 1 / sum[half];
    T* const to = y + place.of(call.y, call) + rows[half] * call.y.token;
#pragma unroll
    for (int c = 0; c < width / 8; ++c) {
      const int at = c * 8 + pair;
      const T low = narrowed<T>(held[c][half * 2] * inverse), high = narrowed<T>(held[c][half * 2 + 1] * inverse);
      if (at + 1 < call.value_size && call.value_size % 2 == 0) {
        *reinterpret_cast<std::uint32_t*>(to + at) = paired(low, high);
      } else {
        if (at < call.value_size) to[at] = low;
        if (at + 1 < call.value_size) to[at + 1] = high;
      }
    }
  }
}

template <typename T>
bool quads(const AttentionOperand& operand, std::int64_t channels, const void* data) {
  constexpr std::int64_t pack = 16 / sizeof(T);
  return channels % pack == 0 && operand.offset % pack == 0 && operand.batch % pack == 0 && operand.head % pack == 0 &&
         operand.token % pack == 0 && quad_aligned(static_cast<const char*>(data));
}

template <typename T>
void start(const Context& context, const AttentionProblem& p, Call call, const T* q, const T* k, const T* v,
           const T* bias, T* y) {
  const auto with_blocks = [&](int queries) {
    call.blocks = (call.queries + queries - 1) / queries;
    return dim3(static_cast<unsigned>(p.n * p.heads * call.blocks));
  };
  const auto widest = std::max(p.head_size, p.value_size);
  if constexpr (is_half<T>) {
    call.quads_qk = quads<T>(p.q, p.head_size, q) && quads<T>(p.k, p.head_size, k);
    call.quads_v = quads<T>(p.v, p.value_size, v);
    const dim3 grid = with_blocks(tile_queries);
    const auto launched = [&](auto kernel) {
      launch(context, kernel, grid, dim3(mma_threads), 0, q, k, v, bias, y, call);
    };
    const bool unit = call.epsilon > 0;
    if (widest <= 32) return launched(unit ? attention_mma<T, 32, true> : attention_mma<T, 32, false>);
    if (widest <= 64) return launched(unit ? attention_mma<T, 64, true> : attention_mma<T, 64, false>);
    if (widest <= 128) return launched(unit ? attention_mma<T, 128, true> : attention_mma<T, 128, false>);
  }
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

void attention(const Context& context, const AttentionProblem& p, DType dtype, const void* q, const void* k,
               const void* v, const void* bias, const std::int32_t* rows, void* y) {
  if (p.n == 0 || p.heads == 0 || p.queries == 0 || p.value_size == 0) return;
  Call call{};
  call.q = p.q, call.k = p.k, call.v = p.v, call.y = p.y;
  call.heads = static_cast<int>(p.heads);
  call.queries = static_cast<int>(p.queries);
  call.keys = static_cast<int>(p.keys);
  call.head_size = static_cast<int>(p.head_size);
  call.value_size = static_cast<int>(p.value_size);
  call.bias_n = static_cast<int>(p.bias_n);
  call.bias_heads = static_cast<int>(p.bias_heads);
  call.bias_queries = static_cast<int>(p.bias_queries);
  call.rows_n = static_cast<int>(p.rows_n);
  call.rows = rows;
  call.scales_by_head = !p.head_scales.empty();
  call.scales[0] = static_cast<float>(p.scale * 1.4426950408889634);
  for (std::size_t head = 0; head < p.head_scales.size(); ++head)
    call.scales[head] = static_cast<float>(p.scale * 1.4426950408889634 * p.head_scales[head]);
  call.epsilon = static_cast<float>(p.qk_norm_epsilon.value_or(0));
  dispatch(dtype, WithHalves<Types<float>>(), [&]<typename T>(std::type_identity<T>) {
    start(context, p, call, static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v),
          static_cast<const T*>(bias), static_cast<T*>(y));
  });
}

}  // namespace lenslet::cuda
