#pragma once
// The wgmma_gemm kernel: persistent, warp-specialised blocks of three or four warpgroups. One thread of the producer
// warpgroup fills a ring of stages with windows and filters by TMA; each consumer multiplies its share of a tile's
// pixels and runs their epilogue. The ring runs on over tile borders: operands of the next tile arrive during an
// epilogue. Consumers are not synchronised with each other, so one may multiply while the other stores.

#include "base/cuda/launch.h"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_element.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_stage.cuh"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments. x, residual and y are NHWC with pixels at multiples of 16 bytes (aligned_nhwc). At most 640 bytes:
/// larger parameters slow launches (WgmmaSplitK), and alignment would make it 768.
struct WgmmaGemm {
  CUtensorMap windows{};  ///< of x: in im2col mode, or pointwise [pixels][C]
  CUtensorMap filters{};  ///< [K][R*S][C], C of a set
  CUtensorMap results{};  ///< of y: [pixels][k], boxes of a part
  /// The residual's map, which may be y's; or, for problems with tails, x's map of their windows.
  CUtensorMap residuals_or_tails{};
  WindowWalk<std::int16_t> walk;
  DeviceActivation activation;
  int pointwise = 0;
  int pixels = 0, k = 0;  ///< pixels: N*P*Q; k: K with padding, which is written too
  int biases = 0;         ///< K
  KOrder k_order;
  int by_channels = 0;          ///< goes_by_channels()
  int steps = 0;                ///< k-blocks of a tile
  int stages = 0;               ///< in use
  int filters_last = 0;         ///< whether stages keep their filters (lasting_stages)
  int tiles = 0, tiles_n = 0;   ///< total; along gemm_n
  SetTiles sets;                ///< of tiles along gemm_n
  const float* bias = nullptr;  ///< may be null
  int adds_residual = 0;
  KTail tail;
};
static_assert(sizeof(WgmmaGemm) <= 640);

/// Threads of the consumers and the producer warpgroup.
constexpr int wgmma_threads(int consumers) { return 128 * (1 + consumers); }

/// Registers a thread: at launch (a multiple of eight, all of a multiprocessor's), kept by the producer, and given to a
/// consumer.
struct WgmmaRegisters {
  int producer, consumer;
};
constexpr WgmmaRegisters registers_of(int consumers) {
  const int all = 65536 / 128 / (1 + consumers) / 8 * 8 * (1 + consumers), producer = consumers == 2 ? 40 : 32;
  return {producer, (all - producer) / consumers / 8 * 8};
}
static_assert(registers_of(2).consumer == 232);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A block: its shared memory layout and tiles. A k-block is 128 bytes, `width` channels each of `groups` groups.
template <typename T, WgmmaTile tile, int width, int k_groups, bool residual>
struct WgmmaBlock {
  using Element = WgmmaElement<T>;
  static constexpr WgmmaTileShape shape = shape_of(tile);
  static constexpr WgmmaRegisters registers = registers_of(shape.consumers);
  static constexpr int box_bytes = Element::box_bytes(shape.n);
  static constexpr WgmmaShared layout = shared_of(shape, residual, box_bytes);
  static constexpr int stage_bytes = layout.pixels + layout.filters, slots = layout.slots;
  static constexpr bool for_residual = residual;
  /// Whole groups, each a k-block.
  static constexpr bool goes_one_by_one = width * sizeof(T) == wgmma_step_bytes && k_groups == 1;
  static constexpr bool may_have_tails = goes_one_by_one && !residual;
  using Stage = WgmmaStage<shape.m, shape.n, width, k_groups, sizeof(T)>;
  static_assert(layout.pixels % 1024 == 0 && layout.filters % 1024 == 0 && layout.barriers % 8 == 0);

  unsigned char* shared;

  __device__ static int stages(const WgmmaGemm& g) { return Element::filters_may_last ? g.stages : layout.stages; }
  __device__ static bool filters_last(const WgmmaGemm& g) { return Element::filters_may_last && g.filters_last != 0; }
  __device__ static int first() { return static_cast<int>(blockIdx.x); }
  __device__ static int step() { return static_cast<int>(gridDim.x); }

  __device__ unsigned char* pixels(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned char* filters(int stage) const { return pixels(stage) + layout.pixels; }
  /// Barrier of a stage: its operands have arrived. empty(): its readers are done.
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(shared + layout.barriers) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + layout.stages; }
  __device__ unsigned char* staging(int warp) const { return shared + layout.staging + warp * (slots * box_bytes); }
  /// Barriers of a warp's slots: a box of the residual has arrived.
  __device__ std::uint64_t* residuals(int warp) const { return full(0) + 2 * layout.stages + warp * slots; }
};

/// Producer: one thread, all TMA loads of a block.
template <bool by_channels, bool tails, typename Block>
__device__ inline void produce(const WgmmaGemm& g, const Block& block) {
  using Stage = typename Block::Stage;
  prefetch_map(g.filters);
  prefetch_map(g.windows);
  if constexpr (tails) prefetch_map(g.residuals_or_tails);
  // Filters do not depend on the previous kernel.
  const int own_tiles = (g.tiles - Block::first() + Block::step() - 1) / Block::step();
  int early = Block::filters_last(g) ? g.steps * own_tiles : g.steps;
  early = early < Block::stages(g) ? early : Block::stages(g);
  {
    const int first_k = Block::first() % g.tiles_n * Block::shape.n;
    KWalk k_walk;
    for (int stage = 0, step = 0; stage < early; ++stage) {
      Stage::template load_filters<by_channels, tails>(g, block.filters(stage), block.full(stage), first_k, k_walk);
      if (!Block::Element::filters_may_last || ++step < g.steps) continue;
      step = 0;
      k_walk = {};
    }
  }
  wait_for_previous();
  fence_proxy_async_global();
  StageRing at;
  for (int index = Block::first(); index < g.tiles; index += Block::step()) {
    const int tile_m = index / g.tiles_n, tile_n = index - tile_m * g.tiles_n, first_k = tile_n * Block::shape.n;
    const int first_pixel = tile_m * Block::shape.m, first_c = g.sets.first_channel(tile_n);
    const WindowStart start = g.walk.start(first_pixel);
    KWalk k_walk;
    for (int step = 0; step < g.steps; ++step) {
      std::uint64_t* const full = block.full(at.stage);
      if (early > 0) {
        --early;
      } else {
        wait_parity(block.empty(at.stage), at.phase ^ 1);  // all are empty at first
        KWalk same = k_walk;
        if (Block::filters_last(g))
          Stage::template expect_windows<tails>(g, full, k_walk);
        else
          Stage::template load_filters<by_channels, tails>(g, block.filters(at.stage), full, first_k, same);
      }
      Stage::template load_windows<by_channels, tails>(g, block.pixels(at.stage), full, first_pixel, start, k_walk,
                                                       first_c);
      at.next(Block::stages(g));
    }
  }
  let_next_start();
}

/// Consumer: a warpgroup, its share of every tile's pixels. `multiply`: as multiply_tile().
template <typename T, typename Block, typename Multiply>
__device__ inline void consume(const WgmmaGemm& g, const Block& block, const Multiply& multiply) {
  constexpr int n = Block::shape.n, rows64 = Block::shape.m / 64 / Block::shape.consumers;
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - 4, 0), consumer = warp / 4;
  const unsigned lane = threadIdx.x % 32;
  const int share_m = consumer * (rows64 * 64), own_m = share_m + warp % 4 * 16;

  wait_for_previous();
  typename Block::Element::template Epilogue<Block, WgmmaGemm> epilogue(g, block, warp);
  StageRing at;
  typename Block::Element::Accumulator d[rows64][n / 2];
  for (int index = Block::first(); index < g.tiles; index += Block::step()) {
    const int tile_m = index / g.tiles_n, next = index + Block::step(), next_m = next / g.tiles_n;
    epilogue.begin({tile_m * Block::shape.m + own_m}, (index - tile_m * g.tiles_n) * n,
                   {next_m * Block::shape.m + own_m}, (next - next_m * g.tiles_n) * n);
    multiply(at, share_m, lane, d);
    epilogue.finish(d);
  }
  epilogue.end();
}

#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// A whole kernel; `tails`: of such blocks.
template <typename T, bool tails, typename Block, typename Multiply>
__device__ inline void run_wgmma_block(const WgmmaGemm& g, const Block& block, const Multiply& multiply) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Block::layout.stages; ++stage) {
      init_mbarrier(block.full(stage), 1);
      init_mbarrier(block.empty(stage), Block::shape.consumers * 4);
    }
    init_residual_barriers(block);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_up_registers<Block::registers.producer>();
    if (threadIdx.x != 0)
      wait_for_previous();
    else if (tails && g.tail.exists())
      if (g.by_channels != 0)
        produce<tails, tails>(g, block);
      else
        produce<false, tails>(g, block);
    else if (Block::goes_one_by_one && g.by_channels != 0)
      produce<Block::goes_one_by_one, false>(g, block);
    else
      produce<false, false>(g, block);
  } else {
    take_registers<Block::registers.consumer>();
    consume<T>(g, block, multiply);
  }
}
#endif

/// `residual`: selects the shared memory layout for residuals.
template <typename T, WgmmaTile tile, int width, int k_groups, bool residual>
__global__ void __launch_bounds__(wgmma_threads(shape_of(tile).consumers), 1)
    wgmma_gemm_kernel(const __grid_constant__ WgmmaGemm g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = WgmmaBlock<T, tile, width, k_groups, residual>;
  const Block block{shared};
  run_wgmma_block<T, Block::may_have_tails>(g, block, [&](StageRing& at, int first_row, unsigned lane, auto& d) {
    multiply_tile<T>(g, block, at, first_row, lane, d);
  });
#endif
}

}  // namespace lenslet::cuda
