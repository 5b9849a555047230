#pragma once
// wgmma_patch with cluster split-K: one tile a cluster, each block multiplies a split of its groups of channels. Like
// wgmma_slices.cuh, but on halo tiles: a 3x3 k-block of 112x128 loads 18 KB from L2 where im2col boxes of 128x128 load
// 32, which is L2-bound. One producer thread in a block's last warp issues TMA loads; each warpgroup multiplies 64
// filters by the unit's pixels. A stage of filters is one tap, or a row of three where a barrier a tap would slow
// narrow tiles. Reduction and epilogue: wgmma_slices_finish.cuh.

#include "base/cuda/launch.h"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/cluster.cuh"
#include "ops/conv/cuda/wgmma_112.cuh"
#include "ops/conv/cuda/wgmma_patch_slices_plan.h"
#include "ops/conv/cuda/wgmma_slices_finish.cuh"
#include "ops/conv/cuda/wgmma_stage.cuh"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments. x, residual and y are NHWC with pixels at multiples of 16 bytes (aligned_nhwc). At most 384 bytes
/// (see WgmmaSlices).
struct PatchSlices {
  CUtensorMap patches{};  ///< of x, [N][H][W][C]: boxes are a unit's halo tile; float32: the map rounds
  CUtensorMap filters{};  ///< [K][R*S][C]; float32: permuted as wgmma_tf32 packs them
  UnitWalk walk;
  DeviceActivation activation;
  int p = 0, q = 0, k = 0;  ///< k: K with padding, which is written too
  std::int16_t room = 0;    ///< padding channels of k
  std::int16_t pad_top = 0, pad_left = 0;
  std::uint8_t r = 0, s = 0, dilation_h = 0, dilation_w = 0;
  std::uint8_t filter_stages = 0, patch_stages = 0, slices_log2 = 0;
  int groups = 0;  ///< groups of channels, all splits
  int tiles_n = 0;
  const float* bias = nullptr;     ///< may be null
  const void* residual = nullptr;  ///< like y, pixel pitch k; may be null, or y
  void* y = nullptr;
  int y_pixel = 0;  ///< pixel pitch of y in elements
};
static_assert(sizeof(PatchSlices) <= 384);

/// Threads of a consumer warpgroup and a producer warp.
inline constexpr int patch_slices_consumers = 128, patch_slices_threads = patch_slices_consumers + 32;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Two lines of a unit: columns of accumulators.
struct PatchRows {
  static constexpr bool turned = true;
  using Begin = UnitStart;
  int p, q, n;
  __device__ static PatchRows at(const UnitStart& unit, int row) {
    return {unit.p + row / patch_slices_columns, unit.q, unit.n};
  }
  __device__ bool exists(const PatchSlices& g, int row) const {
    return p + row / patch_slices_columns < g.p && q + row % patch_slices_columns < g.q;
  }
  __device__ int index(const PatchSlices& g, int row) const {
    return (n * g.p + p + row / patch_slices_columns) * g.q + q + row % patch_slices_columns;
  }
  __device__ static PatchSlicesShare share(int, int, int slices_log2) { return patch_slices_share(slices_log2); }
};

/// A block: its shared memory layout and its split, groups [first, last).
template <typename T, int taps>
struct PatchSlice {
  static constexpr int stage_taps = taps, row_bytes = patch_slices_row_bytes,
                       tap_bytes = patch_slices_filters * row_bytes;
  static constexpr SlicesTileShape shape{patch_slices_filters, patch_slices_pixels};
  static constexpr int channels = row_bytes / static_cast<int>(sizeof(T));
  static_assert(patches_at(0) % 1024 == 0 && patches_at(1) % 1024 == 0);

  unsigned char* shared;
  int columns, patch_box, patch_bytes;  ///< of a halo tile: width, TMA box, and its slot
  int rank, unit, first_k, first, last, slices_log2;

  __device__ PatchSlice(const PatchSlices& g, unsigned char* memory) : shared(memory) {
    columns = patch_slices_columns + (g.s - 1) * g.dilation_w;
    patch_box = (patch_slices_lines + (g.r - 1) * g.dilation_h) * columns * row_bytes;
    patch_bytes = (patch_box + 1023) / 1024 * 1024;
    const int block = static_cast<int>(blockIdx.x), tile = block >> g.slices_log2;
    unit = tile / g.tiles_n;
    rank = block & ((1 << g.slices_log2) - 1);
    first_k = (tile - unit * g.tiles_n) * patch_slices_filters;
    slices_log2 = g.slices_log2;
    first = first_step(rank, g.groups, g.slices_log2);
    last = first_step(rank + 1, g.groups, g.slices_log2);
  }

  __device__ unsigned char* sums() const { return shared + patch_slices_barrier_bytes; }
  __device__ std::uint64_t* barriers() const { return reinterpret_cast<std::uint64_t*>(shared); }
  /// Barriers: a halo tile (or a stage's filters) has arrived; its readers are done.
  __device__ std::uint64_t* patch_full(int stage) const { return barriers() + stage; }
  __device__ std::uint64_t* patch_empty(const PatchSlices& g, int stage) const {
    return barriers() + g.patch_stages + stage;
  }
  __device__ std::uint64_t* full(const PatchSlices& g, int stage) const {
    return barriers() + 2 * g.patch_stages + stage;
  }
  __device__ std::uint64_t* empty(const PatchSlices& g, int stage) const { return full(g, stage) + g.filter_stages; }
  __device__ unsigned char* patch(int stage) const { return shared + patches_at(slices_log2) + stage * patch_bytes; }
  __device__ unsigned char* filters(const PatchSlices& g, int stage) const {
    return patch(g.patch_stages) + stage * (taps * tap_bytes);
  }
};

/// Producer: one thread, all TMA loads of a block.
template <typename Block>
__device__ inline void produce_slice(const PatchSlices& g, const Block& block) {
  constexpr int channels = Block::channels, tap_bytes = Block::tap_bytes;
  prefetch_map(g.filters);
  prefetch_map(g.patches);
  const int taps = g.r * g.s;
  const auto bring_filters = [&](int stage, int group, int tap) {
    std::uint64_t* const full = block.full(g, stage);
    unsigned char* const to = block.filters(g, stage);
    arrive_expecting(full, Block::stage_taps * tap_bytes);
    for (int i = 0; i < Block::stage_taps; ++i)
      copy_tile(to + i * tap_bytes, g.filters, full, group * channels, tap + i, block.first_k);
  };
  // Filters do not depend on the previous kernel.
  int early = 0;
  for (int group = block.first; group < block.last && early < g.filter_stages; ++group)
    for (int tap = 0; tap < taps && early < g.filter_stages; tap += Block::stage_taps, ++early)
      bring_filters(early, group, tap);
  wait_for_previous();
  order_copies_after_stores();
  const UnitStart at = g.walk.start(block.unit);
  StageRing<> patch{g.patch_stages}, filter{g.filter_stages};
  for (int group = block.first; group < block.last; ++group, patch.next()) {
    wait_for_phase(block.patch_empty(g, patch.stage), patch.phase ^ 1);  // all are empty at first
    std::uint64_t* const full = block.patch_full(patch.stage);
    arrive_expecting(full, static_cast<unsigned>(block.patch_box));
    copy_tile(block.patch(patch.stage), g.patches, full, group * channels, at.q - g.pad_left, at.p - g.pad_top, at.n);
    if (group == block.first) let_next_start();
    for (int tap = 0; tap < taps; tap += Block::stage_taps, filter.next()) {
      if (early > 0) {
        --early;
        continue;
      }
      wait_for_phase(block.empty(g, filter.stage), filter.phase ^ 1);
      bring_filters(filter.stage, group, tap);
    }
  }
}

/// Consumer: the warpgroup that multiplies.
template <typename T, typename Block>
__device__ inline void consume_slice(const PatchSlices& g, const Block& block) {
  constexpr int row_bytes = Block::row_bytes, taps = Block::stage_taps;
  constexpr int terms_bytes = wgmma_terms * 2;  // of one instruction, for any T
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const unsigned lane = threadIdx.x % 32;
  wait_for_previous();
  SlicesFinisher<T, Block, PatchSlices, PatchRows> finisher(g, block, warp, block.rank, g.walk.start(block.unit),
                                                            block.first_k);
  const int s = g.s, stages = g.r * s / taps, columns = block.columns;
  // Operand descriptors and strides in 16 bytes, kept warp-uniform: computed per thread, a k-block of 128x128 took 0.7
  // us for 0.35.
  const std::uint64_t first_pixels = wgmma_operand<row_bytes>(block.patch(0), columns);
  const std::uint64_t first_filters = wgmma_operand<row_bytes>(block.filters(g, 0));
  const int patch_stage = block.patch_bytes / 16;
  constexpr int filter_stage = taps * Block::tap_bytes / 16;
  const int tap_offset = g.dilation_w * (row_bytes / 16), line_offset = g.dilation_h * columns * (row_bytes / 16);
  StageRing<> patch{g.patch_stages}, filter{g.filter_stages};
  float d[patch_slices_pixels / 2];
  // Stages that products in flight read; -1: none.
  int last_filter = -1, last_patch = -1;
  const auto release_last = [&] {
    if (lane == 0 && last_filter >= 0) arrive(block.empty(g, last_filter));
    if (lane == 0 && last_patch >= 0) arrive(block.patch_empty(g, last_patch));
    last_filter = last_patch = -1;
  };
  const int groups = block.last - block.first;
  for (int group = 0; group < groups; ++group) {
    wait_for_phase(block.patch_full(patch.stage), patch.phase);
    const std::uint64_t pixels = first_pixels + static_cast<unsigned>(patch.stage * patch_stage);
    int column = 0, line = 0, offset = 0;
    for (int stage = 0; stage < stages; ++stage) {
      wait_for_phase(block.full(g, filter.stage), filter.phase);
      const std::uint64_t filters = first_filters + static_cast<unsigned>(filter.stage * filter_stage);
      wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        const std::uint64_t of_tap = pixels + static_cast<unsigned>(offset + tap * tap_offset);
#pragma unroll
        for (int at = 0; at < row_bytes; at += terms_bytes)
          wgmma_112<T>(d, filters + wgmma_behind(tap * Block::tap_bytes + at), of_tap + wgmma_behind(at),
                       group > 0 || stage > 0 || tap > 0 || at > 0);
      }
      wgmma_commit();
      // The previous k-block is done: this warp has released its stage.
      wgmma_wait<1>();
      release_last();
      last_filter = filter.stage;
      filter.next();
      offset += taps * tap_offset;
      column += taps;
      if (column == s) {
        column = 0;
        offset = ++line * line_offset;
      }
    }
    last_patch = patch.stage;
    patch.next();
  }
  wgmma_wait<0>();
  wgmma_hold(d);
  // Without split-K the accumulators are staged over stages that other warps' products may still read.
  if (g.slices_log2 == 0) asm volatile("bar.sync 1, %0;" ::"n"(patch_slices_consumers) : "memory");
  finisher.finish(d);
}

#endif

/// Grid: blocks of a tile (a cluster) adjacent; tiles of the same unit adjacent. `taps`: of a stage.
template <typename T, int taps>
__global__ void __launch_bounds__(patch_slices_threads, 1)
    wgmma_patch_slices_kernel(const __grid_constant__ PatchSlices g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  const PatchSlice<T, taps> block(g, shared);
  const bool copies = threadIdx.x >= patch_slices_consumers;
  if (threadIdx.x == patch_slices_consumers) {
    for (int stage = 0; stage < g.patch_stages; ++stage) {
      init_barrier(block.patch_full(stage), 1);
      init_barrier(block.patch_empty(g, stage), 4);
    }
    for (int stage = 0; stage < g.filter_stages; ++stage) {
      init_barrier(block.full(g, stage), 1);
      init_barrier(block.empty(g, stage), 4);
    }
    publish_barriers();
  }
  __syncthreads();
  if (g.slices_log2 > 0) leave_cluster();  // arrive; waited for before partial sums are sent
  if (copies) {
    if (threadIdx.x == patch_slices_consumers)
      produce_slice(g, block);
    else
      wait_for_previous();
    wait_for_sums(g);
  } else {
    consume_slice<T>(g, block);
  }
#endif
}

}  // namespace lenslet::cuda
