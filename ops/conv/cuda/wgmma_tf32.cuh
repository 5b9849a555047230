#pragma once
// The wgmma_tf32 kernel: wgmma_gemm's (wgmma_gemm.cuh) on float32 windows, which TMA rounds to TF32 on the way into
// shared memory, and on filters rounded when packed. A k-block has as many bytes and takes the tensor cores as long.
// The epilogue stores float32 through boxes in shared memory by TMA, which loads residuals the same way. Filters are
// permuted so that a thread has eight adjacent ones of a pixel (tf32_filter_at).
//
// Rounding windows in place would add 32 KiB of shared memory traffic to a k-block of 128x128, which has 80 KiB in
// about 640 cycles of at most 128 bytes.

#include "base/cuda/launch.h"
#include "base/cuda/tensor_copy.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_tf32_finish.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// Kernel arguments. x, residual and y are NHWC with pixels at multiples of 16 bytes (aligned_nhwc). At most 640 bytes,
/// as WgmmaGemm.
struct WgmmaTf32 {
  CUtensorMap windows{};                        ///< of x: im2col mode, or pointwise [pixels][C]; rounds
  CUtensorMap filters{};                        ///< [K in whole boxes][R*S][C], C of a set
  CUtensorMap results{}, residuals_or_tails{};  ///< as WgmmaGemm's
  WindowWalk<std::int16_t> walk;
  DeviceActivation activation;
  int pointwise = 0;
  int pixels = 0, k = 0;  ///< pixels: N*P*Q; k: K with padding, which is written too
  int biases = 0;         ///< K
  TermOrder terms;
  int by_channels = 0;          ///< goes_by_channels()
  int steps = 0;                ///< k-blocks of a tile
  int tiles = 0, tiles_n = 0;   ///< total; along gemm_n
  SetTiles sets;                ///< of tiles along gemm_n
  const float* bias = nullptr;  ///< may be null
  int adds_residual = 0;
  TermTail tail;
};
static_assert(sizeof(WgmmaTf32) <= 640);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A block's shared memory layout.
template <WgmmaTile tile, bool residual>
struct Tf32Block {
  static constexpr WgmmaTileShape shape = shape_of(tile);
  static constexpr WgmmaRegisters registers = registers_of(shape.consumers);
  static constexpr WgmmaTf32Shared layout = tf32_shared_of(shape, residual);
  static constexpr int stage_bytes = layout.pixels + layout.filters, buffers = layout.buffers;
  static constexpr bool may_have_tails = !residual;
  using Stage = WgmmaStage<shape.m, shape.n, wgmma_tf32_step, 1, 4>;
  static_assert(layout.pixels % 1024 == 0 && layout.filters % 1024 == 0 && layout.barriers % 8 == 0);

  unsigned char* shared;

  __device__ unsigned char* pixels(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned char* filters(int stage) const { return pixels(stage) + layout.pixels; }
  __device__ unsigned char* staging(int warp) const {
    return shared + layout.staging + warp * (layout.buffers * tf32_staged_bytes);
  }
  /// Barrier of a stage: its operands have arrived. empty(): its readers are done.
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(shared + layout.barriers) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + layout.stages; }
  /// Barriers of a warp's buffers: a box of the residual has arrived.
  __device__ std::uint64_t* residuals(int warp) const { return full(0) + 2 * layout.stages + warp * layout.buffers; }
};

/// Producer: one thread, all TMA loads of a block.
template <bool by_channels, bool tails, typename Block>
__device__ inline void produce_tf32(const WgmmaTf32& g, const Block& block) {
  using Stage = typename Block::Stage;
  constexpr int stages = Block::layout.stages;
  prefetch_map(g.filters);
  prefetch_map(g.windows);
  if constexpr (tails) prefetch_map(g.residuals_or_tails);
  // Filters do not depend on the previous kernel.
  int early = g.steps < stages ? g.steps : stages;
  {
    const int first_k = static_cast<int>(blockIdx.x) % g.tiles_n * Block::shape.n;
    TermWalk terms;
    for (int stage = 0; stage < early; ++stage)
      Stage::template bring_filters<by_channels, tails>(g, block.filters(stage), block.full(stage), first_k, terms);
  }
  wait_for_previous();
  order_copies_after_stores();
  StageWalk<stages> at;
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const int tile_m = index / g.tiles_n, tile_n = index - tile_m * g.tiles_n, first_k = tile_n * Block::shape.n;
    const int first_pixel = tile_m * Block::shape.m, first_c = g.sets.first_channel(tile_n);
    const WindowStart start = g.walk.start(first_pixel);
    TermWalk terms;
    for (int step = 0; step < g.steps; ++step) {
      std::uint64_t* const full = block.full(at.stage);
      if (early > 0) {
        --early;
      } else {
        wait_for_phase(block.empty(at.stage), at.phase ^ 1);  // all are empty at first
        TermWalk same = terms;
        Stage::template bring_filters<by_channels, tails>(g, block.filters(at.stage), full, first_k, same);
      }
      Stage::template bring_windows<by_channels, tails>(g, block.pixels(at.stage), full, first_pixel, start, terms,
                                                        first_c);
      at.next();
    }
  }
  let_next_start();
}

/// Consumer: a warpgroup, its share of every tile's pixels.
template <typename Block>
__device__ inline void consume_tf32(const WgmmaTf32& g, const Block& block) {
  constexpr int stages = Block::layout.stages, n = Block::shape.n,
                rows64 = Block::shape.m / 64 / Block::shape.consumers;
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - 4, 0), consumer = warp / 4;
  const unsigned lane = threadIdx.x % 32;
  const int share_m = consumer * (rows64 * 64), own_m = share_m + warp % 4 * 16;

  wait_for_previous();
  Tf32Finisher<Block, WgmmaTf32> finisher(g, block, warp);
  StageWalk<stages> at;
  float d[rows64][n / 2];
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const int next = index + static_cast<int>(gridDim.x), tile_m = index / g.tiles_n, next_m = next / g.tiles_n;
    finisher.begin({tile_m * Block::shape.m + own_m}, (index - tile_m * g.tiles_n) * n,
                   {next_m * Block::shape.m + own_m}, (next - next_m * g.tiles_n) * n);
    multiply_tile<float>(g, block, at, share_m, lane, d);
    finisher.finish(d);
  }
  finisher.end();
}

#endif

/// `residual`: selects the shared memory layout for residuals.
template <WgmmaTile tile, bool residual>
__global__ void __launch_bounds__(wgmma_threads(shape_of(tile).consumers), 1)
    wgmma_tf32_kernel(const __grid_constant__ WgmmaTf32 g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = Tf32Block<tile, residual>;
  const Block block{shared};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Block::layout.stages; ++stage) {
      init_barrier(block.full(stage), 1);
      init_barrier(block.empty(stage), Block::shape.consumers * 4);
    }
    for (int i = 0; i < Block::shape.consumers * 4 * Block::layout.buffers; ++i)
      init_barrier(block.residuals(0) + i, 1);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_up_registers<Block::registers.producer>();
    if (threadIdx.x != 0)
      wait_for_previous();
    else if (Block::may_have_tails && g.tail.exists())
      if (g.by_channels != 0)
        produce_tf32<true, Block::may_have_tails>(g, block);
      else
        produce_tf32<false, Block::may_have_tails>(g, block);
    else if (g.by_channels != 0)
      produce_tf32<true, false>(g, block);
    else
      produce_tf32<false, false>(g, block);
  } else {
    take_registers<Block::registers.consumer>();
    consume_tf32(g, block);
  }
#endif
}

}  // namespace lenslet::cuda
