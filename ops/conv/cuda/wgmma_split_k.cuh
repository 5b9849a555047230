#pragma once
// The wgmma_split_k kernel, cluster split-K: one tile a cluster, each block multiplies a split of its k-blocks, so that
// a long gemm_k uses the L2 bandwidth of several multiprocessors. One producer thread in the warp behind them issues
// TMA loads, one or two consumer warpgroups multiply 64 pixels each. Blocks do one tile: they start while the previous
// kernel runs and have loaded their first filters when it ends. Reduction and epilogue: wgmma_split_k_epilogue.cuh.
// float32 is multiplied as TF32: 128-byte rows of 32 channels, rounded by TMA; k of an instruction has as many bytes.

#include "base/cuda/cluster.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_split_k_epilogue.cuh"
#include "ops/conv/cuda/wgmma_stage.cuh"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments for T: Float16, BFloat16, or float (TF32). x, residual and y are NHWC with pixels at multiples of
/// 16 bytes (aligned_nhwc). At most 384 bytes: four more (512, aligned) cost 0.13 us a kernel of a graph, ResNet-50 at
/// batch 1 0.2034 ms for 0.1977 on an H200; an empty kernel is not slowed.
struct WgmmaSplitK {
  CUtensorMap windows{};  ///< of x: im2col mode, or pointwise [pixels][C]; float32: the map rounds
  CUtensorMap filters{};  ///< [K][R*S][C]; float32: permuted as wgmma_tf32 packs them
  WindowWalk<> walk;
  DeviceActivation activation;
  std::int16_t pointwise = 0;
  std::int16_t padding = 0;  ///< padding channels of k
  int pixels = 0, k = 0;     ///< pixels: N*P*Q; k: K with padding, which is written too
  KOrder k_order;
  int steps = 0;         ///< k-blocks of a tile, all splits
  int split_k_log2 = 0;  ///< cluster size, log2
  int tiles_n = 0;
  const float* bias = nullptr;     ///< may be null
  const void* residual = nullptr;  ///< like y, pixel pitch k; may be null, or y
  void* y = nullptr;
  int y_pixel = 0;  ///< pixel pitch of y in elements
};
static_assert(sizeof(WgmmaSplitK) <= 384);

template <SplitKTile tile>
inline constexpr int split_k_consumers = shape_of(tile).m / 64;
/// Threads of the consumers and the producer warp.
template <SplitKTile tile>
inline constexpr int split_k_threads = 128 * split_k_consumers<tile> + 32;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// What a block computes of its pixels beside their products: nothing. Else NormalisedRows, which has `warps` of its
/// own that read every stage.
struct PlainRows {
  static constexpr int warps = 0;
  template <typename Block>
  __device__ static void init_barriers(const Block&) {}

  /// Of a consumer's thread: its warpgroup's pixels begin at first_row, the block's filters at first_k.
  template <typename Block>
  __device__ PlainRows(const WgmmaSplitK&, const Block&, int /*first_row*/, int /*first_k*/) {}
  /// With its final accumulators.
  template <typename Accumulators>
  __device__ void finish(Accumulators&) const {}
};

/// A block's shared memory layout.
template <typename T, SplitKTile tile, int stage_width, int stage_groups, typename OfRows = PlainRows>
struct SplitKBlock {
  using Rows = OfRows;
  static constexpr SplitKTileShape shape = shape_of(tile);
  static constexpr SplitKShared layout = shared_of(shape);
  static constexpr int stage_bytes = layout.pixels + layout.filters;
  static constexpr int width = stage_width, k_groups = stage_groups;
  using Stage = WgmmaStage<shape.m, shape.n, width, k_groups, sizeof(T)>;
  static_assert(layout.pixels % 1024 == 0 && layout.filters % 1024 == 0 && layout.barriers % 8 == 0);

  unsigned char* shared;

  __device__ unsigned char* acc() const { return shared + layout.acc; }
  __device__ unsigned char* pixels(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned char* filters(int stage) const { return pixels(stage) + layout.pixels; }
  /// Barrier of a stage: its operands have arrived. empty(): its readers are done.
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(shared + layout.barriers) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + layout.stages; }
  __device__ void init_barriers(const WgmmaSplitK&) const {
    for (int stage = 0; stage < layout.stages; ++stage) {
      init_mbarrier(full(stage), 1);
      init_mbarrier(empty(stage), split_k_consumers<tile> * 4 + Rows::warps);
    }
    Rows::init_barriers(*this);
  }
};

/// Producer: one thread, all TMA loads of a block.
template <typename Block>
__device__ inline void produce_split(const WgmmaSplitK& g, const Block& block) {
  using Stage = typename Block::Stage;
  constexpr int stages = Block::layout.stages;
  prefetch_map(g.filters);
  prefetch_map(g.windows);
  const SplitWork work(g, g.steps, Block::shape.n);
  const int first_pixel = work.tile_m * Block::shape.m;
  // Filters do not depend on the previous kernel.
  KWalk k_walk = KWalk::at(g.k_order, work.first * Block::k_groups, Block::width), filter_gemm_k = k_walk;
  const int early = min(work.first + stages, work.last);
  for (int step = work.first; step < early; ++step)
    Stage::load_filters(g, block.filters(step - work.first), block.full(step - work.first), work.first_k,
                        filter_gemm_k);
  const WindowStart start = g.walk.start(first_pixel);
  wait_for_previous();
  fence_proxy_async_global();
  StageRing at;
  for (int step = work.first; step < work.last; ++step) {
    std::uint64_t* const full = block.full(at.stage);
    if (step >= early) {
      wait_parity(block.empty(at.stage), at.phase ^ 1);
      Stage::load_filters(g, block.filters(at.stage), full, work.first_k, filter_gemm_k);
    }
    Stage::load_windows(g, block.pixels(at.stage), full, first_pixel, start, k_walk);
    if (step == work.first) let_next_start();
    at.next(stages);
  }
}

/// Consumer: a warpgroup, its 64 pixels of the tile.
template <typename T, typename Block>
__device__ inline void consume_split(const WgmmaSplitK& g, const Block& block) {
  using Stage = typename Block::Stage;
  constexpr int stages = Block::layout.stages, n = Block::shape.n;
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  const unsigned lane = threadIdx.x % 32;
  const SplitWork work(g, g.steps, Block::shape.n);
  const int first_pixel = work.tile_m * Block::shape.m;
  typename Block::Rows rows(g, block, warp / 4 * 64, work.first_k);
  wait_for_previous();
  SplitKEpilogue<T, Block, WgmmaSplitK> epilogue(g, block, warp, work.rank, first_pixel, work.first_k);
  StageRing at;
  float d[1][n / 2];
  int last = 0;
  for (int step = work.first; step < work.last; ++step) {
    wait_parity(block.full(at.stage), at.phase);
    Stage::template multiply<T>(d, block.pixels(at.stage), block.filters(at.stage), warp / 4 * 64, step > work.first);
    // The previous k-block is done: this warp has released its stage.
    wgmma_wait<1>();
    if (step > work.first && lane == 0) arrive(block.empty(last));
    last = at.stage;
    at.next(stages);
  }
  wgmma_wait<0>();
  wgmma_hold(d[0]);
  rows.finish(d[0]);
  epilogue.finish(d[0]);
}

#endif

template <typename T, SplitKTile tile, int width, int k_groups>
__global__ void __launch_bounds__(split_k_threads<tile>, shape_of(tile).blocks)
    wgmma_split_k_kernel(const __grid_constant__ WgmmaSplitK g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = SplitKBlock<T, tile, width, k_groups>;
  run_split<T, 128 * split_k_consumers<tile>>(g, Block{shared});
#endif
}

}  // namespace lenslet::cuda
