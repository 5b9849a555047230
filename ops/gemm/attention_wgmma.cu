// Attention of 16-bit values by warpgroups (wgmma): K and V are read from shared memory once for 64 queries, where
// attention_mma.cu reads them once for 16. Lanes as in base/cuda/wgmma.cuh. Where TMA can move them: attention_tma.cu.
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

constexpr int most_tiles_held = 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// to [64][width], swizzled, = rows from `first` on, and zeros behind them.
template <int width, typename T>
__device__ void load_tile(unsigned char* to, const T* from, int token, const std::int32_t* table, int first, int count,
                          int channels) {
  constexpr int packs = width / 8, row_bytes = width * 2;
  const int c = static_cast<int>(threadIdx.x) % packs, step = static_cast<int>(blockDim.x) / packs;
  int row = static_cast<int>(threadIdx.x) / packs;
  // `step` is a multiple of the swizzle's period: a thread's units lie alike in all its rows.
  to += swizzled_offset<width>(row, c);
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
__global__ void __launch_bounds__(most_attention_groups* group_threads, 2)
    attend_by_groups(const T* q, const T* k, const T* v, const T* bias, T* y,
                     const __grid_constant__ AttentionCall call, const AttentionTiles shape) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int steps = width / 16, tiles = tile_keys / 8, row_bytes = width * 2;
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char* const k_tiles = shared;
  unsigned char* const v_tiles = shared + shape.held * attention_tile_bytes<width>;
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
    load_tile<width>(k_tiles + slot * attention_tile_bytes<width>, k_first, static_cast<int>(call.k.token), table, key,
                     call.keys, call.head_size);
    load_tile<width>(v_tiles + slot * attention_tile_bytes<width>, v_first, static_cast<int>(call.v.token), table, key,
                     call.keys, call.value_size);
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
  const LaneBiases<T> biases(call, place, bias, row, lane, scale[0]);

  Part<width> part;
  auto& held = reinterpret_cast<float(&)[width / 2]>(part.held);
  int slot = 0;
#pragma unroll 1
  for (int round = 0; round < shape.rounds; ++round) {
    if (round > 0 && round + ahead < shape.rounds) {
      __syncthreads();
      fetch(round + ahead, slot == 0 ? ahead : slot - 1);
    }
    const int here = min(call.keys - round * tile_keys, tile_keys);
    const bool computes = first < call.queries;
    float score[tiles][4] = {};
    if (computes && biases.exist()) biases.begin(score, round, here, pair);
    wait_for_copies<most_tiles_held - 1>(min(shape.rounds - 1 - round, ahead));
    fence_proxy_async_shared();
    __syncthreads();
    if (computes) {
      auto& scores = reinterpret_cast<float(&)[tile_keys / 2]>(score);
      const std::uint64_t of_keys = wgmma_operand<row_bytes>(k_tiles + slot * attention_tile_bytes<width>),
                          of_values = wgmma_operand<row_bytes>(v_tiles + slot * attention_tile_bytes<width>);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        wgmma_of_registers<T, tile_keys>(scores, left[step], of_keys + wgmma_behind(step * wgmma_k_bytes));
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_hold(scores);
      if (!biases.mask()) mask_keys(score, here, pair);
      std::uint32_t powers[tiles / 2][4];
      part.template take_tile<T>(score, scale, here, powers);
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
void start(const Context& context, const AttentionProblem& p, const AttentionCall& call, const AttentionTiles& shape,
           const void* q, const void* k, const void* v, const void* bias, void* y) {
  const auto bytes = static_cast<std::size_t>(shape.held * 2 * attention_tile_bytes<width>);
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
  AttentionTiles shape;
  if (groups > 1 && p.n * p.heads * ((groups + 1) / 2) >= 2 * multiprocessors) shape.groups = 2;
  shape.rounds = static_cast<int>((p.keys + tile_keys - 1) / tile_keys);
  shape.held = std::clamp(shape.rounds, 1, most_tiles_held);
  const int queries = shape.groups * group_queries;
  call.blocks = (call.queries + queries - 1) / queries;
  if (attention_tma(context, p, call, dtype, shape, q, k, v, bias, y)) return true;
  dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto run = std::max(p.head_size, p.value_size) <= 32 ? start<T, 32> : start<T, 64>;
    run(context, p, call, shape, q, k, v, bias, y);
  });
  return true;
}

}  // namespace lenslet::cuda
