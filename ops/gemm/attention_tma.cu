// Attention of 16-bit values by warpgroups whose operands TMA moves: Q, K and V come to shared memory as boxes of 64
// tokens of one head, Y leaves in boxes of 16. What maps cannot describe: attention_wgmma.cu.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/tensor_map.h"
#include "base/cuda/wgmma.cuh"
#include "base/dtypes.h"
#include "ops/gemm/attention_part.cuh"

namespace lenslet::cuda {
namespace {

/// [N][H][tokens][channels] of each operand. A box of Y has 16 tokens, the others' 64.
struct AttentionMaps {
  CUtensorMap q{}, k{}, v{}, y{};
};

/// Shared memory: tiles of K, tiles of V, Q and Y of each warpgroup, barriers.
template <int width>
constexpr int attention_tma_bytes(const AttentionTiles& tiles) {
  return (2 * tiles.held + tiles.groups) * attention_tile_bytes<width> + (tiles.held + 1) * 8;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Writes a warp's 16 rows to shared memory and from there to `y`.
template <typename T, int width>
__device__ void store_box(const Part<width>& part, const CUtensorMap& y, unsigned char* box, int token, int head,
                          int n) {
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = part.sum[half];
    for (int mask = 1; mask < 4; mask *= 2) sum += shuffle_xor(sum, mask);
    inverse[half] = sum == 0 ? 0 : 1 / sum;
  }
#pragma unroll
  for (int two = 0; two < width / 16; ++two) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const pair = part.held[two * 2 + i / 2] + i % 2 * 2;
      words[i] = narrowed_pair<T>(pair[0] * inverse[i % 2], pair[1] * inverse[i % 2]);
    }
    stmatrix(box + swizzled_offset<width>(lane % 16, two * 2 + lane / 16), words);
  }
  fence_proxy_async_shared();
  __syncwarp();
  if (lane != 0) return;
  tma_store(y, box, 0, token, head, n);
  tma_commit();
  tma_wait_read<0>();
}

#endif

/// Channels are at most `width`: 32 or 64. A multiprocessor has four warpgroups.
template <typename T, int width>
__global__ void __launch_bounds__(most_attention_groups* group_threads, 2)
    attend_by_boxes(const __grid_constant__ AttentionMaps maps, const T* bias,
                    const __grid_constant__ AttentionCall call, const AttentionTiles shape) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int steps = width / 16, columns = tile_keys / 8, row_bytes = width * 2;
  constexpr int tile_bytes = attention_tile_bytes<width>;
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned char *const k_tiles = shared, *const v_tiles = k_tiles + shape.held * tile_bytes,
                       *const queries = v_tiles + shape.held * tile_bytes;
  auto* const full = reinterpret_cast<std::uint64_t*>(queries + shape.groups * tile_bytes);
  std::uint64_t* const arrived = full + shape.held;  // Q
  const Place place(call);
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / warp_threads, 0);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads, pair = lane % 4 * 2;
  const int block_first = place.block * shape.groups * group_queries;
  const int first = block_first + warp / 4 * group_queries, own = first + warp % 4 * warp_queries,
            row = own + lane / 4;  // and row + 8
  const bool leads = threadIdx.x == 0;
  if (leads) {
    for (int i = 0; i <= shape.held; ++i) init_mbarrier(full + i, 1);
    fence_mbarrier_init();
    prefetch_map(maps.q);
    prefetch_map(maps.k);
    prefetch_map(maps.v);
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();

  const auto fetch = [&](int round, int slot) {
    arrive_expect_tx(full + slot, 2 * tile_bytes);
    tma_load(k_tiles + slot * tile_bytes, maps.k, full + slot, 0, round * tile_keys, place.head, place.n);
    tma_load(v_tiles + slot * tile_bytes, maps.v, full + slot, 0, round * tile_keys, place.head, place.n);
  };
  const int ahead = shape.held - 1;
  if (leads) {
    fence_proxy_async_global();
    arrive_expect_tx(arrived, static_cast<unsigned>(shape.groups * tile_bytes));
    for (int group = 0; group < shape.groups; ++group)
      tma_load(queries + group * tile_bytes, maps.q, arrived, 0, block_first + group * group_queries, place.head,
               place.n);
    for (int round = 0; round <= ahead; ++round) fetch(round, round);
  }

  const float scale[2] = {place.scale(call), place.scale(call)};
  const LaneBiases<T> biases(call, place, bias, row, lane, scale[0]);
  const std::uint64_t of_queries = wgmma_operand<row_bytes>(queries + warp / 4 * tile_bytes);
  Part<width> part;
  const bool computes = first < call.queries;
  if (computes) wait_parity(arrived, 0);
  int slot = 0;
  unsigned phase = 0;
#pragma unroll 1
  for (int round = 0; round < shape.rounds; ++round) {
    if (round > 0 && round + ahead < shape.rounds) {
      __syncthreads();
      if (leads) fetch(round + ahead, slot == 0 ? ahead : slot - 1);
    }
    if (computes) {
      const int key = round * tile_keys, here = min(call.keys - key, tile_keys);
      float score[columns][4];
      if (biases.exist()) biases.begin(score, round, here, pair);
      wait_parity(full + slot, phase);
      auto& scores = reinterpret_cast<float(&)[tile_keys / 2]>(score);
      const std::uint64_t of_keys = wgmma_operand<row_bytes>(k_tiles + slot * tile_bytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < steps; ++step)
        wgmma<T, tile_keys>(scores, of_queries + wgmma_behind(step * wgmma_k_bytes),
                            of_keys + wgmma_behind(step * wgmma_k_bytes), step > 0 || biases.exist() ? 1 : 0);
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_hold(scores);
      if (!biases.mask()) mask_keys(score, here, pair);
      std::uint32_t powers[columns / 2][4];
      part.template take_tile<T>(score, scale, here, powers);
      auto& held = reinterpret_cast<float(&)[width / 2]>(part.held);
      const std::uint64_t of_values = wgmma_operand<row_bytes>(v_tiles + slot * tile_bytes);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < columns / 2; ++step)
        wgmma_of_registers<T, width, true>(held, powers[step], of_values + wgmma_behind(step * 16 * row_bytes));
      wgmma_commit();
      wgmma_wait<0>();  // other warpgroups multiply meanwhile
      wgmma_hold(held);
    }
    if (++slot == shape.held) slot = 0, phase ^= 1;
  }
  if (own < call.queries)
    store_box<T>(part, maps.y, queries + warp / 4 * tile_bytes + warp % 4 * warp_queries * row_bytes, own, place.head,
                 place.n);
#endif
}

/// A map of `tokens` rows of `channels` in boxes of `box` tokens.
CUtensorMap map_of(const AttentionProblem& p, const AttentionOperand& operand, const void* data, std::int64_t tokens,
                   std::int64_t channels, int width, int box) {
  const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const auto bytes = [](std::int64_t elements) { return static_cast<std::uint64_t>(elements) * 2; };
  // The stride of an axis of one is not used, and may be 0.
  const std::array strides{p.heads == 1 ? std::uint64_t{16} : bytes(operand.head),
                           p.n == 1 ? std::uint64_t{16} : bytes(operand.batch)};
  return tiled_map(static_cast<const char*>(data) + operand.offset * 2,
                   std::array{size(channels), size(tokens), size(p.heads), size(p.n)},
                   std::array{static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(box), 1U, 1U},
                   MapElement::half, tokens == 1 ? size(channels) : size(operand.token), strides);
}

template <typename T, int width>
void start(const Context& context, const AttentionProblem& p, const AttentionCall& call, const AttentionTiles& shape,
           const void* q, const void* k, const void* v, const void* bias, void* y) {
  const AttentionMaps maps{.q = map_of(p, p.q, q, p.queries, p.head_size, width, group_queries),
                           .k = map_of(p, p.k, k, p.keys, p.head_size, width, tile_keys),
                           .v = map_of(p, p.v, v, p.keys, p.value_size, width, tile_keys),
                           .y = map_of(p, p.y, y, p.queries, p.value_size, width, warp_queries)};
  const auto bytes = static_cast<std::size_t>(attention_tma_bytes<width>(shape));
  allow_shared_bytes(attend_by_boxes<T, width>, bytes);
  launch(context, attend_by_boxes<T, width>, dim3(static_cast<unsigned>(p.n * p.heads * call.blocks)),
         dim3(static_cast<unsigned>(shape.groups * group_threads)), bytes, maps, static_cast<const T*>(bias), call,
         shape);
}

/// Whether a map can describe it: K and V that all heads share have a stride of 0.
bool has_strides(const AttentionProblem& p, const AttentionOperand& operand) {
  return (p.heads == 1 || operand.head != 0) && (p.n == 1 || operand.batch != 0) && operand.token != 0;
}

}  // namespace

bool attention_tma(const Context& context, const AttentionProblem& p, const AttentionCall& call, DType dtype,
                   const AttentionTiles& shape, const void* q, const void* k, const void* v, const void* bias,
                   void* y) {
  const auto positive = [](float scale) { return scale > 0; };
  const std::span scales(call.scales, call.scales_by_head ? static_cast<std::size_t>(call.heads) : 1);
  if (p.rows_n > 0 || p.keys == 0 || !call.quads_y || !std::ranges::all_of(scales, positive)) return false;
  if (!has_strides(p, p.q) || !has_strides(p, p.k) || !has_strides(p, p.v)) return false;
  dispatch(dtype, HalfTypes(), [&]<typename T>(std::type_identity<T>) {
    const auto run = std::max(p.head_size, p.value_size) <= 32 ? start<T, 32> : start<T, 64>;
    run(context, p, call, shape, q, k, v, bias, y);
  });
  return true;
}

}  // namespace lenslet::cuda
