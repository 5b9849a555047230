#pragma once
// What attention's kernels take, and where a block's problem lies.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "base/cuda/vector.cuh"
#include "lenslet/tensor.h"
#include "ops/gemm/attention.h"
#include "ops/gemm/attention_bias.h"
#include "ops/gemm/attention_cuda.h"

namespace lenslet::cuda {

inline constexpr float log2_e = 1.44269504F;

/// AttentionProblem as kernels take it; scores are in units of log2, so that powers are of 2.
struct AttentionCall {
  AttentionOperand q, k, v, y;
  int heads, queries, keys, head_size, value_size;
  int blocks;  ///< of queries
  int bias_n, bias_heads, bias_queries;
  int rows_n;
  const std::int32_t* rows;        ///< null where rows_n is 0
  float scales[most_head_scales];  ///< the first for all heads, unless each has its own
  bool scales_by_head;
  float epsilon;  ///< of the norms of rows of Q and K; 0: they are not normalised
  // 16 bits:
  bool quads_qk, quads_v, quads_y;  ///< rows of Q and K, V, Y are multiples of 16 bytes at multiples of 16 bytes
  bool bias_pairs;                  ///< a bias's rows are multiples of 4 bytes at multiples of 4 bytes
  bool bias_tiles;                  ///< it is prepared (attention_bias.h)
};

inline constexpr int bias_tile_quads = bias_tile_queries * bias_tile_keys / 8;  ///< units of 16 bytes

/// A block's problem, head and first query. Found once: divisions are slow.
struct Place {
  int n, head, block;
  int problem;                ///< from whose row 0 rows are counted: with a table the first of its images
  const std::int32_t* table;  ///< of this problem, or null

  __device__ explicit Place(const AttentionCall& call) {
    const unsigned line = blockIdx.x / static_cast<unsigned>(call.blocks);
    block = static_cast<int>(blockIdx.x - line * static_cast<unsigned>(call.blocks));
    n = static_cast<int>(line / static_cast<unsigned>(call.heads));
    head = static_cast<int>(line) - n * call.heads;
    const int turn = call.rows_n == 0 ? 0 : n % call.rows_n;
    problem = n - turn;
    table = call.rows_n == 0 ? nullptr : call.rows + std::int64_t{turn} * call.queries;
  }
  /// The offset of that problem's row 0.
  __device__ std::int64_t of(const AttentionOperand& operand) const {
    return operand.offset + problem * operand.batch + head * operand.head;
  }
  __device__ float scale(const AttentionCall& call) const { return call.scales[call.scales_by_head ? head : 0]; }
  /// Of the bias's row `query`.
  __device__ std::int64_t of_bias(const AttentionCall& call, int query) const {
    const std::int64_t plane = std::int64_t{n % call.bias_n} * call.bias_heads + (call.bias_heads == 1 ? 0 : head);
    return (plane * call.bias_queries + (call.bias_queries == 1 ? 0 : query)) * call.keys;
  }
  /// Of the prepared bias's tile of 16 queries and 64 keys, in units of 16 bytes; the next keys' follows.
  __device__ std::int64_t of_bias_tile(const AttentionCall& call, int query) const {
    const std::int64_t plane = std::int64_t{n % call.bias_n} * call.bias_heads + (call.bias_heads == 1 ? 0 : head);
    const int tiles_q = (call.queries + bias_tile_queries - 1) / bias_tile_queries,
              tiles_k = (call.keys + bias_tile_keys - 1) / bias_tile_keys;
    return (plane * tiles_q + query / bias_tile_queries) * tiles_k * bias_tile_quads;
  }
};

/// The row of token `token`.
__device__ inline int row_of(const std::int32_t* table, int token) {
  return table == nullptr ? token : __ldg(table + token);
}

/// All of a call but `blocks` and what follows `epsilon`.
inline AttentionCall call_of(const AttentionProblem& p, const std::int32_t* rows) {
  AttentionCall call{};
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
  return call;
}

/// Whether rows of an operand of T are read 16 bytes at a time.
template <typename T>
bool in_quads(const AttentionOperand& operand, std::int64_t channels, const T* data) {
  return in_packs(operand, channels, 16 / sizeof(T)) && quad_aligned(data);
}

__device__ inline float inverse_norm(float squares, const AttentionCall& call) {
  return 1 / fmaxf(sqrtf(squares), call.epsilon);
}

struct Context;

inline constexpr int group_threads = 128, group_queries = 64, most_attention_groups = 2;

/// Of a block of warpgroups, which have 64 queries each: warpgroups; tiles of 64 keys, and how many of them it holds.
struct AttentionTiles {
  int groups = 1, rounds = 1, held = 1;
};

/// attention() of 16 bits by warpgroups; false: it does not take the problem. For sm_90a.
bool attention_wgmma(const Context& context, const AttentionProblem& problem, AttentionCall call, DType dtype,
                     const void* q, const void* k, const void* v, const void* bias, void* y);
/// The same with operands that TMA moves, `call.blocks` blocks a head; false: maps cannot describe them, or the scale
/// is not positive.
bool attention_tma(const Context& context, const AttentionProblem& problem, const AttentionCall& call, DType dtype,
                   const AttentionTiles& shape, const void* q, const void* k, const void* v, const void* bias, void* y);
/// attention() for float32 with keys in tiles; false: an operand is not aligned, or !fits_attention_tiles().
bool attention_tiles(const Context& context, const AttentionProblem& problem, AttentionCall call, bool tf32,
                     const float* q, const float* k, const float* v, const float* bias, float* y);
/// attention() for 16 bits on tensor cores.
void attention_mma(const Context& context, const AttentionProblem& problem, AttentionCall call, DType dtype,
                   const void* q, const void* k, const void* v, const void* bias, void* y);

}  // namespace lenslet::cuda
