// Attention of 16-bit values by warpgroups (wgmma): K and V are read from shared memory once for 64 queries, where
// attention_mma.cu reads them once for 16. Lanes as in base/cuda/wgmma.cuh.
//
// A warpgroup has 64 queries, in registers as powers are, and takes 64 keys at a time. K and V come to shared memory in
// tiles of 64 tokens, up to 256 tokens ahead, as TMA would write them: rows of 128 or 64 bytes, swizzled.

#include <algorithm>
#include <type_traits>

#include "base/cuda/copy_async.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/wgmma.cuh"
#include "base/dtypes.h"
#include "ops/gemm/attention_part.cuh"

namespace lenslet::cuda {
namespace {

constexpr int group_threads = 128, group_queries = 64, most_groups = 2, most_tiles_held = 4;

/// Of a block: warpgroups; tiles of keys, and how many of them it holds.
struct Tiles {
  int groups = 1, rounds = 1, held = 1;
};

template <int width>
constexpr int tile_bytes = tile_keys*(width * 2);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// to [64][width], swizzled, = rows from `first` on, and zeros behind them.
template <int width, typename T>
__device__ void load_tile(unsigned char* to, const T* from, int token, const std::int32_t* table, int first, int count,
                          int channels) {
  constexpr int packs = width / 8, row_bytes = width * 2;
  const int c = static_cast<int>(threadIdx.x) % packs, step = static_cast<int>(blockDim.x) / packs;
  int row = static_cast<int>(threadIdx.x) / packs;
  // `step` is a multiple of the swizzle's period: a thread's units lie alike in all its rows.
  to += row * row_bytes + (c ^ (width == 64 ? row % 8 : row / 2 % 4)) * 16;
  const bool has_channels = c * 8 < channels;
  if (has_channels) from += c * 8;
#pragma unroll 2
  for (; row < tile_keys; row += step, to += step * row_bytes) {
    const bool valid = has_channels && first + row < count;
    copy_async_16(to, from + (valid ? std::int64_t{row_of(table, first + row)} * token : 0), valid);
  }
}

#endif

/// Channels are at most `width`: 32 or 64. A multiprocessor has four warpgroups.
template <typename T, int width>
__global__ void __launch_bounds__(most_groups* group_threads, 2)
    attend_by_groups(const T* q, const T* k, const T* v, const T* bias, T* y,
                     const __grid_constant__ AttentionCall call, const Tiles shape) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int steps = width / 16, tiles = tile_keys / 8, row_bytes = width * 2;
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const k_tiles = shared;
  unsigned char* const v_tiles = shared + shape.held * tile_bytes<width>;
  const Place place(call);
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32, pair = lane % 4 * 2;
  const int first = (place.block * shape.groups + warp / 4) * group_queries,
            row = first + warp % 4 * warp_queries + lane / 4;  // and row + 8
  const std::int32_t* const table = place.table;
  int rows[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) rows[half] = row_of(table, min(row + half * 8, call.queries - 1));
  wait_for_previous();  // the table is a constant, and no earlier step's work
  let_next_start();

  const T *const k_first = k + place.of(call.k), *const v_first = v + place.of(call.v);
  const auto fetch = [&](int round, int slot) {
    const int key = round * tile_keys;
    load_tile<width>(k_tiles + slot * tile_bytes<width>, k_first, static_cast<int>(call.k.token), table, key, call.keys,
                     call.head_size);
    load_tile<width>(v_tiles + slot * tile_bytes<width>, v_first, static_cast<int>(call.v.token), table, key, call.keys,
                     call.value_size);
    commit_copies();
  };
  const int ahead = shape.held - 1;
#pragma unroll 1
  for (int round = 0; round <= ahead; ++round) fetch(round, round);

  std::uint32_t left[steps][4];
  float scale[2] = {place.scale(call), place.scale(call)};
  const std::uint32_t signs = scale[0] < 0 ? 0x80008000U : 0;  // of Q, so that scales are positive
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* const x = q + place.of(call.q) + rows[half] * call.q.token + pair;
#pragma unroll
    for (int i = 0; i < width / 8; ++i)
      left[i / 2][i % 2 * 2 + half] =
          i * 8 < call.head_size ? *reinterpret_cast<const std::uint32_t*>(x + i * 8) ^ signs : 0;
    scale[half] = fabsf(scale[half]);
  }
  const bool biased = call.bias_n > 0;
  const T* const biases[2] = {bias + (biased ? place.of_bias(call, min(row, call.queries - 1)) : 0),
                              bias + (biased ? place.of_bias(call, min(row + 8, call.queries - 1)) : 0)};
  const uint4* const bias_tiles =
      reinterpret_cast<const uint4*>(bias) +
      (biased && call.bias_tiles ? place.of_bias_tile(call, min(row, call.queries - 1)) + lane : 0);
  const float units[2] = {log2_e / scale[0], log2_e / scale[0]};  // of a bias, as products before they are scaled

  Part<width> part;
  auto& held = reinterpret_cast<float(&)[width / 2]>(part.held);
  int slot = 0;
#pragma unroll 1
  for (int round = 0; round < shape.rounds; ++round) {
    if (round > 0 && round + ahead < shape.rounds) {
      __syncthreads();
      fetch(round + ahead, slot == 0 ? ahead : slot - 1);
    }
    const int key = round * tile_keys, here = min(call.keys - key, tile_keys);
    const bool computes = first < call.queries, whole = here == tile_keys;
    float score[tiles][4];
    if (computes && biased && call.bias_tiles) {
      begin_with_biases<T>(score, bias_tiles + round * bias_tile_quads, units);
    } else {
      if (computes && biased) {
#pragma unroll
        for (int i = 0; i < tiles * 2; ++i) {
          const int tile = i / 2, half = i % 2;
          const float2 wide = widened_pair<T>(biases_at(biases[half] + key, call.bias_pairs, tile * 8 + pair, here));
          score[tile][half * 2] = wide.x * units[half], score[tile][half * 2 + 1] = wide.y * units[half];
        }
      } else {
#pragma unroll
        for (auto& tile : score)
          for (float& s : tile) s = 0;
      }
      if (!whole)
#pragma unroll
        for (int i = 0; i < tiles * 4; ++i)
          if (i / 4 * 8 + pair + i % 2 >= here) score[i / 4][i % 4] = -INFINITY;
    }
    wait_for_copies<most_tiles_held - 1>(min(shape.rounds - 1 - round, ahead));
    fence_proxy_async_shared();
    __syncthreads();
    if (computes) {
      auto& scores = reinterpret_cast<float(&)[tile_keys / 2]>(score);
      const std::uint64_t of_keys = wgmma_operand<row_bytes>(k_tiles + slot * tile_bytes<width>),
                          of_values = wgmma_operand<row_bytes>(v_tiles + slot * tile_bytes<width>);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        wgmma_of_registers<T, tile_keys>(scores, left[step], of_keys + wgmma_behind(step * wgmma_k_bytes));
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_hold(scores);
      float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i) top[i / 2] = fmaxf(top[i / 2], score[tile][i]);
      part.follow(top, scale);
      std::uint32_t powers[tiles / 2][4];
#pragma unroll
      for (int tile = 0; tile < tiles; tile += 2) {
        if (whole || tile * 8 < here)
          part.template take_powers<T>(score[tile], score[tile + 1], scale, powers[tile / 2]);
        else
          for (std::uint32_t& word : powers[tile / 2]) word = 0;
      }
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < tiles / 2; ++step)
        wgmma_of_registers<T, width, true>(held, powers[step], of_values + wgmma_behind(step * 16 * row_bytes));
      wgmma_commit();
      wgmma_wait<0>();  // other warpgroups multiply meanwhile
      wgmma_hold(held);
    }
    if (++slot == shape.held) slot = 0;
  }
  store_rows<T>(part, y, call, place, row, rows, pair);
#endif
}

template <typename T, int width>
void start(const Context& context, const AttentionProblem& p, AttentionCall call, Tiles shape, const void* q,
           const void* k, const void* v, const void* bias, void* y) {
  const int queries = shape.groups * group_queries;
  call.blocks = (call.queries + queries - 1) / queries;
  const auto bytes = static_cast<std::size_t>(shape.held * 2 * tile_bytes<width>);
  allow_shared_bytes(attend_by_groups<T, width>, bytes);
  launch(context, attend_by_groups<T, width>, dim3(static_cast<unsigned>(p.n * p.heads * call.blocks)),
         dim3(static_cast<unsigned>(shape.groups * group_threads)), bytes, static_cast<const T*>(q),
         static_cast<const T*>(k), static_cast<const T*>(v), static_cast<const T*>(bias), static_cast<T*>(y), call,
         shape);
}

}  // namespace

bool attention_wgmma(const Context& context, const AttentionProblem& p, AttentionCall call, DType dtype, const void* q,
                     const void* k, const void* v, const void* bias, void* y) {
  constexpr std::int64_t multiprocessors = 132, widest = 64;  // of an H200; the same shape on all devices
  if (call.epsilon > 0 || !call.quads_qk || !call.quads_v || std::max(p.head_size, p.value_size) > widest) return false;
  // Fewer queries leave most of a warpgroup's rows empty; in fewer blocks keys are better divided among warps.
  const std::int64_t groups = (p.queries + group_queries - 1) / group_queries;
  if (p.queries < group_queries / 2 || p.n * p.heads * groups < multiprocessors) return false;
  Tiles shape;
  if (groups > 1 && p.n * p.heads * ((groups + 1) / 2) >= 2 * multiprocessors) shape.groups = 2;
  shape.rounds = static_cast<int>((p.keys + tile_keys - 1) / tile_keys);
  shape.held = std::clamp(shape.rounds, 1, most_tiles_held);
  dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto run = std::max(p.head_size, p.value_size) <= 32 ? start<T, 32> : start<T, 64>;
    run(context, p, call, shape, q, k, v, bias, y);
  });
  return true;
}

}  // namespace lenslet::cuda
