#pragma once
// The wgmma_tf32 kernel: that of wgmma_gemm (wgmma_gemm.cuh) without clusters, on float32 windows, which the copy
// engine rounds to TF32 on their way into shared memory, and on filters that were rounded when they were prepared. A
// step has as many bytes as there and takes the tensor cores as long; sums leave as float32.
//
// Warps that rounded windows in place would move 32 KiB more in shared memory a step of 128x128, where products and
// copies move 80 in about 640 cycles, of 128 bytes at most.

#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// What the kernel takes. x, residual and y are NHWC.
struct WgmmaTf32 {
  CUtensorMap windows{};  ///< of x: in im2col mode, or pointwise [pixels][C]; rounds
  CUtensorMap filters{};  ///< [K][R*S][C]
  WindowWalk walk;
  DeviceActivation activation;
  int pointwise = 0;
  int pixels = 0, k = 0;  ///< pixels: N*P*Q
  int y_pixel = 0;        ///< floats from one pixel of y to the next; K with a residual
  TermOrder terms;
  int steps = 0;                     ///< of a tile
  int tiles = 0, tiles_n = 0;        ///< of all blocks, and those side by side
  const float* bias = nullptr;       ///< may be null
  const float4* residual = nullptr;  ///< may be null, or y
  float4* y = nullptr;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A block's shared memory.
template <WgmmaTile tile>
struct Tf32Block {
  static constexpr WgmmaTileShape shape = shape_of(tile);
  static constexpr WgmmaTf32Shared layout = tf32_shared_of(shape);
  static constexpr int stage_bytes = layout.pixels + layout.filters;
  static_assert(layout.pixels % 1024 == 0 && layout.filters % 1024 == 0 && layout.barriers % 8 == 0);

  unsigned char* shared;

  __device__ unsigned char* pixels(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned char* filters(int stage) const { return pixels(stage) + layout.pixels; }
  __device__ unsigned char* staging(int warp) const { return shared + layout.staging + warp * tf32_staging_bytes; }
  /// A stage's operands have arrived; its last readers are done.
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(shared + layout.barriers) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + layout.stages; }
};

/// One thread: all copies of a block.
template <WgmmaTile tile>
__device__ inline void produce_tf32(const WgmmaTf32& g, const Tf32Block<tile>& block) {
  using Block = Tf32Block<tile>;
  constexpr int stages = Block::layout.stages;
  prefetch_map(g.filters);
  prefetch_map(g.windows);
  const auto bring_filters = [&](int stage, int first_k, const TermWalk& terms) {
    arrive_expecting(block.full(stage), Block::stage_bytes);
    copy_tile(block.filters(stage), g.filters, block.full(stage), terms.c, terms.tap, first_k);
  };
  // Filters do not wait for what other kernels compute.
  int early = g.steps < stages ? g.steps : stages;
  {
    const int first_k = static_cast<int>(blockIdx.x) % g.tiles_n * Block::shape.n;
    TermWalk terms;
    for (int stage = 0; stage < early; ++stage) {
      bring_filters(stage, first_k, terms);
      terms.next(g.terms, wgmma_tf32_step);
    }
  }
  wait_for_previous();
  order_copies_after_stores();
  StageWalk<stages> at;
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const int tile_m = index / g.tiles_n, first_k = (index - tile_m * g.tiles_n) * Block::shape.n;
    const int first_pixel = tile_m * Block::shape.m;
    const WindowStart start = g.walk.start(first_pixel);
    TermWalk terms;
    for (int step = 0; step < g.steps; ++step) {
      if (early > 0) {
        --early;
      } else {
        wait_for_phase(block.empty(at.stage), at.phase ^ 1);  // the first time round all are
        bring_filters(at.stage, first_k, terms);
      }
      if (g.pointwise != 0)
        copy_tile(block.pixels(at.stage), g.windows, block.full(at.stage), terms.c, first_pixel);
      else
        copy_windows(block.pixels(at.stage), g.windows, block.full(at.stage), terms.c, start.w, start.h, start.n,
                     terms.tap_w, terms.tap_h);
      at.next();
      terms.next(g.terms, wgmma_tf32_step);
    }
  }
  let_next_start();
}

/// What a consumer warp does with its sums. A part is 16 pixels of 32 filters; of a warp's parts those of the same
/// pixels follow each other. On its way out a thread has four filters of every fourth pixel of a part.
template <int rows64, int n>
class Tf32Finisher {
  static constexpr int parts_n = n / tf32_staged_filters, parts = rows64 * parts_n, passes = tf32_staged_rows / 4;

 public:
  __device__ Tf32Finisher(const WgmmaTf32& g, unsigned char* staging)
      : g_(g), staging_(staging), lane_(static_cast<int>(threadIdx.x) % 32), clamp_(g.activation.clamp()) {}

  /// The tile's sums begin at this pixel for this warp. While it multiplies, its first residuals are on their way, the
  /// others as far as L2.
  __device__ void begin(int first_pixel, int first_k) {
    first_pixel_ = first_pixel;
    first_k_ = first_k;
    if (g_.residual == nullptr) return;
    const Outputs outputs = outputs_of(0);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) load_residual(outputs, pass);
#pragma unroll 1
    for (int part = lane_ / tf32_staged_rows; part < parts; part += 32 / tf32_staged_rows) prefetch_residual(part);
    __syncwarp();
  }

  /// All sums are there.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    // A loop, and its body once, for the sake of the code's size; registers are indexed by what is known here.
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (int known = 0; known < parts; ++known)
        if (part == known) stage(d[known / parts_n], known % parts_n * (tf32_staged_filters / 2));
      __syncwarp();
      finish_part(part);
      __syncwarp();
    }
  }

 private:
  /// A thread's of a part: where the first lies, in units of four floats, and how many pixels there are from its own
  /// on. Those of the next pass are y_pixel units behind.
  struct Outputs {
    std::size_t at = 0;
    int pixels = 0;
  };

  __device__ int filter(int part) const { return first_k_ + part % parts_n * tf32_staged_filters; }
  __device__ int pixel(int part) const { return first_pixel_ + part / parts_n * 64; }
  __device__ std::size_t place(int pixel, int filter) const {
    return (static_cast<std::size_t>(pixel) * static_cast<std::size_t>(g_.y_pixel) + static_cast<std::size_t>(filter)) /
           4;
  }
  __device__ Outputs outputs_of(int part) const {
    const int row = pixel(part) + lane_ / 8, k = filter(part) + lane_ % 8 * 4;
    return {place(row, k), k < g_.k ? g_.pixels - row : 0};
  }
  __device__ std::size_t place(const Outputs& outputs, int pass) const {
    return outputs.at + static_cast<std::size_t>(pass) * static_cast<std::size_t>(g_.y_pixel);
  }

  __device__ void load_residual(const Outputs& outputs, int pass) {
    residual_[pass] = {};
    if (pass * 4 < outputs.pixels) residual_[pass] = g_.residual[place(outputs, pass)];
  }
  /// One row of a part, 128 bytes, by each of as many lanes as there are.
  __device__ void prefetch_residual(int part) const {
    const int row = pixel(part) + lane_ % tf32_staged_rows;
    if (row < g_.pixels && filter(part) < g_.k)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(g_.residual + place(row, filter(part))));
  }

  /// A part's fragment, from register `first` on.
  __device__ void stage(const float (&d)[n / 2], int first) const {
    const int row = lane_ / 4, half = lane_ % 4 / 2;
    unsigned char* const to = staging_ + lane_ % 2 * 8;
#pragma unroll
    for (int eight = 0; eight < tf32_staged_filters / 8; ++eight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first + eight * 4 + i * 2;
        *reinterpret_cast<float2*>(to + tf32_staged_offset(row + i * 8, eight * 2 + half)) = {d[at], d[at + 1]};
      }
  }

  __device__ float4* staged(int pass) const {
    return reinterpret_cast<float4*>(staging_ + tf32_staged_offset(lane_ / 8 + pass * 4, lane_ % 8));
  }
  __device__ void store(const Outputs& outputs, int pass, float4 value) const {
    if (pass * 4 < outputs.pixels) g_.y[place(outputs, pass)] = value;
  }

  __device__ void finish_part(int part) {
    const Outputs outputs = outputs_of(part), next = part + 1 < parts ? outputs_of(part + 1) : Outputs{};
    float4 bias{};
    if (g_.bias != nullptr && outputs.pixels > 0)
      bias = *reinterpret_cast<const float4*>(g_.bias + filter(part) + lane_ % 8 * 4);
    const bool clamps = g_.activation.is_clamp();
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      float4 value = *staged(pass) + bias;
      if (g_.residual != nullptr) {
        value = value + residual_[pass];
        load_residual(next, pass);
      }
      if (clamps)
        store(outputs, pass, {clamp_(value.x), clamp_(value.y), clamp_(value.z), clamp_(value.w)});
      else
        *staged(pass) = value;
    }
    if (clamps) return;
      // The others' code is long: once. What a thread reads it has written.
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) store(outputs, pass, g_.activation(*staged(pass)));
  }

  const WgmmaTf32& g_;
  unsigned char* staging_;
  int lane_;
  Clamp clamp_;
  int first_pixel_ = 0, first_k_ = 0;
  float4 residual_[passes];
};

/// A warpgroup: its half of every tile's pixels.
template <WgmmaTile tile>
__device__ inline void consume_tf32(const WgmmaTf32& g, const Tf32Block<tile>& block) {
  using Block = Tf32Block<tile>;
  constexpr int stages = Block::layout.stages, n = Block::shape.n, rows64 = Block::shape.m / 64 / wgmma_consumers;
  constexpr int rows64_bytes = 64 * wgmma_tf32_step * 4, terms_bytes = wgmma_tf32_terms * 4;
  // The same for all threads of a warp, and known to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - 4, 0), consumer = warp / 4;
  const unsigned lane = threadIdx.x % 32;
  const int half_m = consumer * (rows64 * 64);
  const auto release = [&](int stage) {
    if (lane == 0) arrive(block.empty(stage));
  };

  wait_for_previous();
  Tf32Finisher<rows64, n> finisher(g, block.staging(warp));
  StageWalk<stages> at;
  float d[rows64][n / 2];
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const int tile_m = index / g.tiles_n;
    finisher.begin(tile_m * Block::shape.m + half_m + warp % 4 * 16, (index - tile_m * g.tiles_n) * n);
    int last = 0;
    for (int step = 0; step < g.steps; ++step) {
      wait_for_phase(block.full(at.stage), at.phase);
      const std::uint64_t a = wgmma_operand(block.pixels(at.stage)) + wgmma_behind(consumer * rows64 * rows64_bytes);
      const std::uint64_t b = wgmma_operand(block.filters(at.stage));
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < wgmma_tf32_step / wgmma_tf32_terms; ++i)
#pragma unroll
        for (int row = 0; row < rows64; ++row)
          wgmma<float, n>(d[row], a + wgmma_behind(row * rows64_bytes + i * terms_bytes),
                          b + wgmma_behind(i * terms_bytes), step > 0 || i > 0);
      wgmma_commit();
      // The step before this one is done: its stage is free, as far as this warp is concerned.
      wgmma_wait<1>();
      if (step > 0) release(last);
      last = at.stage;
      at.next();
    }
    wgmma_wait<0>();
    release(last);
#pragma unroll
    for (int row = 0; row < rows64; ++row) wgmma_hold(d[row]);
    finisher.finish(d);
  }
}

#endif

/// Registers of a thread: 168 at the start, of which the producer keeps 40 and a consumer gets 232.
template <WgmmaTile tile>
__global__ void __launch_bounds__(wgmma_threads, 1) wgmma_tf32_kernel(const __grid_constant__ WgmmaTf32 g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = Tf32Block<tile>;
  const Block block{shared};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Block::layout.stages; ++stage) {
      init_barrier(block.full(stage), 1);
      init_barrier(block.empty(stage), wgmma_consumers * 4);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_up_registers<40>();
    if (threadIdx.x == 0)
      produce_tf32(g, block);
    else
      wait_for_previous();
  } else {
    take_registers<232>();
    consume_tf32(g, block);
  }
#endif
}

}  // namespace lenslet::cuda
