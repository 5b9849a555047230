#pragma once
// wgmma_halo with cluster split-K: one tile a cluster, each block multiplies a split of its groups of channels. Like
// wgmma_split_k.cuh, but on halo tiles: a 3x3 k-block of 112x128 loads 18 KB from L2 where im2col boxes of 128x128 load
// 32, which is L2-bound. One producer thread in a block's last warp issues TMA loads; each warpgroup multiplies 64
// filters by the unit's pixels. A stage of filters is one tap, or a row of three where a barrier a tap would slow
// narrow tiles. Reduction and epilogue: wgmma_split_k_epilogue.cuh.

#include "base/cuda/cluster.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_112.cuh"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "ops/conv/cuda/wgmma_split_k_epilogue.cuh"
#include "ops/conv/cuda/wgmma_stage.cuh"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments. x, residual and y are NHWC with pixels at multiples of 16 bytes (aligned_nhwc). At most 384 bytes
/// (see WgmmaSplitK).
struct HaloSplitK {
  CUtensorMap halo_tiles{};  ///< of x, [N][H][W][C]: boxes are a unit's halo tile; float32: the map rounds
  CUtensorMap filters{};     ///< [K][R*S][C]; float32: permuted as wgmma_tf32 packs them
  UnitWalk walk;
  DeviceActivation activation;
  int p = 0, q = 0, k = 0;   ///< k: K with padding, which is written too
  std::int16_t padding = 0;  ///< padding channels of k
  std::int16_t pad_top = 0, pad_left = 0;
  std::uint8_t r = 0, s = 0, dilation_h = 0, dilation_w = 0;
  std::uint8_t filter_stages = 0, halo_stages = 0, split_k_log2 = 0;
  int k_groups = 0;  ///< groups of channels, all splits
  int tiles_n = 0;
  const float* bias = nullptr;     ///< may be null
  const void* residual = nullptr;  ///< like y, pixel pitch k; may be null, or y
  void* y = nullptr;
  int y_pixel = 0;  ///< pixel pitch of y in elements
};
static_assert(sizeof(HaloSplitK) <= 384);

/// Threads of a consumer warpgroup and a producer warp.
inline constexpr int halo_split_k_consumers = 128, halo_split_k_threads = halo_split_k_consumers + 32;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two lines of a unit: columns of accumulators.
struct HaloRows {
  static constexpr bool turned = true;
  using Begin = UnitStart;
  int p, q, n;
  __device__ static HaloRows at(const UnitStart& unit, int row) {
    return {unit.p + row / halo_split_k_columns, unit.q, unit.n};
  }
  __device__ bool exists(const HaloSplitK& g, int row) const {
    return p + row / halo_split_k_columns < g.p && q + row % halo_split_k_columns < g.q;
  }
  __device__ int index(const HaloSplitK& g, int row) const {
    return (n * g.p + p + row / halo_split_k_columns) * g.q + q + row % halo_split_k_columns;
  }
  __device__ static HaloSplitKShare share(int, int, int split_k_log2) { return halo_split_k_share(split_k_log2); }
};

/// A block: its split, of groups, and its shared memory layout.
template <typename T, int taps>
struct HaloSplit : SplitWork {
  static constexpr int stage_taps = taps, row_bytes = halo_split_k_row_bytes,
                       tap_bytes = halo_split_k_filters * row_bytes;
  static constexpr SplitKTileShape shape{halo_split_k_filters, halo_split_k_pixels};
  static constexpr int channels = row_bytes / static_cast<int>(sizeof(T));
  static_assert(halo_tiles_at(0) % 1024 == 0 && halo_tiles_at(1) % 1024 == 0);

  unsigned char* shared;
  int columns, halo_box, halo_bytes;  ///< of a halo tile: width, TMA box, and its slot
  int split_k_log2;

  __device__ HaloSplit(const HaloSplitK& g, unsigned char* memory)
      : SplitWork(g, g.k_groups, halo_split_k_filters), shared(memory), split_k_log2(g.split_k_log2) {
    columns = halo_split_k_columns + (g.s - 1) * g.dilation_w;
    halo_box = (halo_split_k_lines + (g.r - 1) * g.dilation_h) * columns * row_bytes;
    halo_bytes = (halo_box + 1023) / 1024 * 1024;
  }

  __device__ unsigned char* acc() const { return shared + halo_split_k_barrier_bytes; }
  __device__ std::uint64_t* barriers() const { return reinterpret_cast<std::uint64_t*>(shared); }
  /// Barriers: a halo tile (or a stage's filters) has arrived; its readers are done.
  __device__ std::uint64_t* halo_full(int stage) const { return barriers() + stage; }
  __device__ std::uint64_t* halo_empty(const HaloSplitK& g, int stage) const {
    return barriers() + g.halo_stages + stage;
  }
  __device__ std::uint64_t* full(const HaloSplitK& g, int stage) const {
    return barriers() + 2 * g.halo_stages + stage;
  }
  __device__ std::uint64_t* empty(const HaloSplitK& g, int stage) const { return full(g, stage) + g.filter_stages; }
  __device__ void init_barriers(const HaloSplitK& g) const {
    for (int stage = 0; stage < g.halo_stages; ++stage) {
      init_mbarrier(halo_full(stage), 1);
      init_mbarrier(halo_empty(g, stage), 4);
    }
    for (int stage = 0; stage < g.filter_stages; ++stage) {
      init_mbarrier(full(g, stage), 1);
      init_mbarrier(empty(g, stage), 4);
    }
  }
  __device__ unsigned char* halo_tile(int stage) const {
    return shared + halo_tiles_at(split_k_log2) + stage * halo_bytes;
  }
  __device__ unsigned char* filters(const HaloSplitK& g, int stage) const {
    return halo_tile(g.halo_stages) + stage * (taps * tap_bytes);
  }
};

/// Producer: one thread, all TMA loads of a block.
template <typename Block>
__device__ inline void produce_split(const HaloSplitK& g, const Block& block) {
  constexpr int channels = Block::channels, tap_bytes = Block::tap_bytes;
  prefetch_map(g.filters);
  prefetch_map(g.halo_tiles);
  const int taps = g.r * g.s;
  const auto load_filters = [&](int stage, int group, int tap) {
    std::uint64_t* const full = block.full(g, stage);
    unsigned char* const to = block.filters(g, stage);
    arrive_expect_tx(full, Block::stage_taps * tap_bytes);
    for (int i = 0; i < Block::stage_taps; ++i)
      tma_load(to + i * tap_bytes, g.filters, full, group * channels, tap + i, block.first_k);
  };
  // Filters do not depend on the previous kernel.
  int early = 0;
  for (int group = block.first; group < block.last && early < g.filter_stages; ++group)
    for (int tap = 0; tap < taps && early < g.filter_stages; tap += Block::stage_taps, ++early)
      load_filters(early, group, tap);
  wait_for_previous();
  fence_proxy_async_global();
  const UnitStart at = g.walk.start(block.tile_m);
  const int halo_stages = g.halo_stages, filter_stages = g.filter_stages;
  StageRing halo_tile, filter;
  for (int group = block.first; group < block.last; ++group, halo_tile.next(halo_stages)) {
    wait_parity(block.halo_empty(g, halo_tile.stage), halo_tile.phase ^ 1);  // all are empty at first
    std::uint64_t* const full = block.halo_full(halo_tile.stage);
    arrive_expect_tx(full, static_cast<unsigned>(block.halo_box));
    tma_load(block.halo_tile(halo_tile.stage), g.halo_tiles, full, group * channels, at.q - g.pad_left,
             at.p - g.pad_top, at.n);
    if (group == block.first) let_next_start();
    for (int tap = 0; tap < taps; tap += Block::stage_taps, filter.next(filter_stages)) {
      if (early > 0) {
        --early;
        continue;
      }
      wait_parity(block.empty(g, filter.stage), filter.phase ^ 1);
      load_filters(filter.stage, group, tap);
    }
  }
}

/// Consumer: the warpgroup that multiplies.
template <typename T, typename Block>
__device__ inline void consume_split(const HaloSplitK& g, const Block& block) {
  constexpr int row_bytes = Block::row_bytes, taps = Block::stage_taps;
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const unsigned lane = threadIdx.x % 32;
  wait_for_previous();
  SplitKEpilogue<T, Block, HaloSplitK, HaloRows> epilogue(g, block, warp, block.rank, g.walk.start(block.tile_m),
                                                          block.first_k);
  const int s = g.s, stages = g.r * s / taps, columns = block.columns;
  // Operand descriptors and strides in 16 bytes, kept warp-uniform: computed per thread, a k-block of 128x128 took 0.7
  // us for 0.35.
  const std::uint64_t first_pixels = wgmma_operand<row_bytes>(block.halo_tile(0), columns);
  const std::uint64_t first_filters = wgmma_operand<row_bytes>(block.filters(g, 0));
  const int halo_stage = block.halo_bytes / 16;
  constexpr int filter_stage = taps * Block::tap_bytes / 16;
  const int tap_offset = g.dilation_w * (row_bytes / 16), line_offset = g.dilation_h * columns * (row_bytes / 16);
  const int halo_stages = g.halo_stages, filter_stages = g.filter_stages;
  StageRing halo_tile, filter;
  float d[halo_split_k_pixels / 2];
  // Stages that products in flight read; -1: none.
  int last_filter = -1, last_halo_tile = -1;
  const auto release_last = [&] {
    if (lane == 0 && last_filter >= 0) arrive(block.empty(g, last_filter));
    if (lane == 0 && last_halo_tile >= 0) arrive(block.halo_empty(g, last_halo_tile));
    last_filter = last_halo_tile = -1;
  };
  const int k_groups = block.last - block.first;
  for (int group = 0; group < k_groups; ++group) {
    wait_parity(block.halo_full(halo_tile.stage), halo_tile.phase);
    const std::uint64_t pixels = first_pixels + static_cast<unsigned>(halo_tile.stage * halo_stage);
    int column = 0, line = 0, offset = 0;
    for (int stage = 0; stage < stages; ++stage) {
      wait_parity(block.full(g, filter.stage), filter.phase);
      const std::uint64_t filters = first_filters + static_cast<unsigned>(filter.stage * filter_stage);
      wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        const std::uint64_t of_tap = pixels + static_cast<unsigned>(offset + tap * tap_offset);
#pragma unroll
        for (int at = 0; at < row_bytes; at += wgmma_k_bytes)
          wgmma_112<T>(d, filters + wgmma_behind(tap * Block::tap_bytes + at), of_tap + wgmma_behind(at),
                       group > 0 || stage > 0 || tap > 0 || at > 0);
      }
      wgmma_commit();
      // The previous k-block is done: this warp has released its stage.
      wgmma_wait<1>();
      release_last();
      last_filter = filter.stage;
      filter.next(filter_stages);
      offset += taps * tap_offset;
      column += taps;
      if (column == s) {
        column = 0;
        offset = ++line * line_offset;
      }
    }
    last_halo_tile = halo_tile.stage;
    halo_tile.next(halo_stages);
  }
  wgmma_wait<0>();
  wgmma_hold(d);
  // Without split-K the accumulators are staged over stages that other warps' products may still read.
  if (g.split_k_log2 == 0) asm volatile("bar.sync 1, %0;" ::"n"(halo_split_k_consumers) : "memory");
  epilogue.finish(d);
}

#endif

/// `taps`: of a stage.
template <typename T, int taps>
__global__ void __launch_bounds__(halo_split_k_threads, 1)
    wgmma_halo_split_k_kernel(const __grid_constant__ HaloSplitK g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  run_split<T, halo_split_k_consumers>(g, HaloSplit<T, taps>(g, shared));
#endif
}

}  // namespace lenslet::cuda
