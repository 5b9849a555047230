#pragma once
// The wgmma_gemm kernel: persistent blocks of three warpgroups. One thread of the first has the copy engine fill stages
// of shared memory with windows and filters, the other two multiply them, each half of a tile's pixels, and finish what
// they have. Stages go round through all tiles of a block: while sums leave, the next tile's operands arrive. Nothing
// else holds the two consumers together, so that one may multiply while the other stores.
//
// The blocks of a cluster take tiles of the same filters and of pixels that follow each other, and each brings its part
// of the filters to all of them: a stage is empty when the consumers of all blocks are done with it.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/convert.h"
#include "base/cuda/launch.h"
#include "base/cuda/vector.cuh"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/cluster.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

/// What the kernel takes. x, residual and y are NHWC, dense.
struct WgmmaGemm {
  CUtensorMap windows{};  ///< of x: in im2col mode, or pointwise [pixels][C]
  CUtensorMap filters{};  ///< [K][R*S][C]
  WindowWalk walk;
  DeviceActivation activation;
  int pointwise = 0;
  int pixels = 0, k = 0;  ///< pixels: N*P*Q
  TermOrder terms;
  int steps = 0;                   ///< of a tile
  int tiles = 0, tiles_n = 0;      ///< tiles: of blocks or, in a cluster, groups of them, the last may be partly empty
  const float* bias = nullptr;     ///< may be null
  const void* residual = nullptr;  ///< may be null, or y
  void* y = nullptr;
};

inline constexpr int wgmma_threads = 128 * (1 + wgmma_consumers);

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A block: its shared memory, and its tiles.
template <WgmmaTile tile, int cluster_blocks>
struct WgmmaBlock {
  static constexpr int cluster = cluster_blocks;
  static constexpr WgmmaTileShape shape = shape_of(tile);
  static constexpr WgmmaShared layout = shared_of(shape);
  static constexpr int stage_bytes = layout.pixels + layout.filters;
  static_assert(layout.pixels % 1024 == 0 && layout.filters % 1024 == 0 && layout.barriers % 8 == 0);

  unsigned char* shared;

  __device__ static int rank() { return static_cast<int>(blockIdx.x) % cluster; }
  __device__ static int first() { return static_cast<int>(blockIdx.x) / cluster; }
  __device__ static int step() { return static_cast<int>(gridDim.x) / cluster; }
  __device__ static int first_pixel(int tile_m) { return (tile_m * cluster + rank()) * shape.m; }

  __device__ unsigned char* pixels(int stage) const { return shared + stage * stage_bytes; }
  __device__ unsigned char* filters(int stage) const { return pixels(stage) + layout.pixels; }
  __device__ unsigned char* staging(int warp) const { return shared + layout.staging + warp * staging_bytes; }
  /// A stage's operands have arrived; its last readers are done.
  __device__ std::uint64_t* full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(shared + layout.barriers) + stage;
  }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + layout.stages; }
};

/// Stages one after the other, and the phase of their barriers.
template <int stages>
struct StageWalk {
  int stage = 0;
  unsigned phase = 0;
  __device__ void next() {
    if (++stage < stages) return;
    stage = 0;
    phase ^= 1;
  }
};

/// One thread: all copies of a block.
template <typename Block>
__device__ inline void produce(const WgmmaGemm& g, const Block& block) {
  constexpr int stages = Block::layout.stages;
  prefetch_map(g.filters);
  prefetch_map(g.windows);
  const auto bring_filters = [&](int stage, int first_k, const TermWalk& terms) {
    arrive_expecting(block.full(stage), Block::stage_bytes);
    if constexpr (Block::cluster == 1) {
      copy_tile(block.filters(stage), g.filters, block.full(stage), terms.c, terms.tap, first_k);
    } else {
      constexpr int part = Block::shape.n / Block::cluster, part_bytes = Block::layout.filters / Block::cluster;
      static_assert(part % 8 == 0);
      copy_tile_to((1U << Block::cluster) - 1, block.filters(stage) + Block::rank() * part_bytes, g.filters,
                   block.full(stage), terms.c, terms.tap, first_k + Block::rank() * part);
    }
  };
  // Filters do not wait for what other kernels compute.
  int early = g.steps < stages ? g.steps : stages;
  {
    const int first_k = Block::first() % g.tiles_n * Block::shape.n;
    TermWalk terms;
    for (int stage = 0; stage < early; ++stage) {
      bring_filters(stage, first_k, terms);
      terms.next(g.terms);
    }
  }
  wait_for_previous();
  order_copies_after_stores();
  StageWalk<stages> at;
  for (int index = Block::first(); index < g.tiles; index += Block::step()) {
    const int tile_m = index / g.tiles_n, first_k = (index - tile_m * g.tiles_n) * Block::shape.n;
    const int first_pixel = Block::first_pixel(tile_m);
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
      terms.next(g.terms);
    }
  }
  let_next_start();
}

template <typename T>
__device__ inline unsigned packed_pair(float low, float high) {
  if constexpr (std::is_same_v<T, Float16>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return static_cast<unsigned>(__half_as_ushort(__low2half(pair))) |
           static_cast<unsigned>(__half_as_ushort(__high2half(pair))) << 16;
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return static_cast<unsigned>(__bfloat16_as_ushort(__low2bfloat16(pair))) |
           static_cast<unsigned>(__bfloat16_as_ushort(__high2bfloat16(pair))) << 16;
  }
}
template <typename T>
__device__ inline uint4 packed(float4 low, float4 high) {
  return {packed_pair<T>(low.x, low.y), packed_pair<T>(low.z, low.w), packed_pair<T>(high.x, high.y),
          packed_pair<T>(high.z, high.w)};
}
template <typename T>
__device__ inline float4 unpacked(unsigned low, unsigned high) {
  const auto number = [](unsigned bits) { return widened(T{static_cast<std::uint16_t>(bits)}); };
  return {number(low), number(low >> 16), number(high), number(high >> 16)};
}

/// What a consumer warp does with its sums. A part is 16 pixels of 64 filters; of a warp's parts those of the same
/// pixels follow each other. On its way out a thread has eight filters of every fourth pixel of a part.
template <typename T, int rows64, int n>
class Finisher {
  static constexpr int parts_n = n / staged_filters, passes = staged_rows / 4;

 public:
  static constexpr int parts = rows64 * parts_n;

  __device__ Finisher(const WgmmaGemm& g, unsigned char* staging)
      : g_(g), staging_(staging), lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// The tile's sums begin at this pixel for this warp. Its first residuals are on their way while it multiplies.
  __device__ void begin(int first_pixel, int first_k) {
    first_pixel_ = first_pixel;
    first_k_ = first_k;
    load_residual(0);
  }

  /// All sums are there.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    // A loop, and its body once, for the sake of the code's size; registers are indexed by what is known here.
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (int known = 0; known < parts; ++known)
        if (part == known) stage(d[known / parts_n], known % parts_n * (staged_filters / 2));
      __syncwarp();
      finish_part(part);
      __syncwarp();
    }
  }

 private:
  __device__ int pixel(int part, int pass) const { return first_pixel_ + part / parts_n * 64 + lane_ / 8 + pass * 4; }
  __device__ int filter(int part) const { return first_k_ + part % parts_n * staged_filters + lane_ % 8 * 8; }
  /// In units of eight elements.
  __device__ std::size_t place(int part, int pass) const {
    return (static_cast<std::size_t>(pixel(part, pass)) * static_cast<std::size_t>(g_.k) +
            static_cast<std::size_t>(filter(part))) /
           8;
  }

  __device__ void load_residual(int part) {
    if (g_.residual == nullptr) return;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) load_residual(part, pass);
  }
  __device__ void load_residual(int part, int pass) {
    residual_[pass] = {};
    if (part < parts && pixel(part, pass) < g_.pixels && filter(part) < g_.k)
      residual_[pass] = static_cast<const uint4*>(g_.residual)[place(part, pass)];
  }

  /// A part's fragment, from register `first` on.
  __device__ void stage(const float (&d)[n / 2], int first) const {
    const int row = lane_ / 4, half = lane_ % 4 / 2;
    unsigned char* const to = staging_ + lane_ % 2 * 8;
#pragma unroll
    for (int eight = 0; eight < staged_filters / 8; ++eight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = first + eight * 4 + i * 2;
        *reinterpret_cast<float2*>(to + staged_offset(row + i * 8, eight, half)) = {d[at], d[at + 1]};
      }
  }

  __device__ float4* staged(int pass, int half) const {
    return reinterpret_cast<float4*>(staging_ + staged_offset(lane_ / 8 + pass * 4, lane_ % 8, half));
  }
  __device__ void store(int part, int pass, float4 low, float4 high) const {
    if (pixel(part, pass) < g_.pixels && filter(part) < g_.k)
      static_cast<uint4*>(g_.y)[place(part, pass)] = packed<T>(low, high);
  }

  __device__ void finish_part(int part) {
    float4 bias[2]{};
    if (g_.bias != nullptr && filter(part) < g_.k) {
      const float4* const from = reinterpret_cast<const float4*>(g_.bias + filter(part));
      bias[0] = from[0];
      bias[1] = from[1];
    }
    const auto kind = g_.activation.kind;
    const bool plain = kind == Activation::Kind::none || kind == Activation::Kind::relu;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
      float4 low = *staged(pass, 0) + bias[0], high = *staged(pass, 1) + bias[1];
      if (g_.residual != nullptr) {
        low = low + unpacked<T>(residual_[pass].x, residual_[pass].y);
        high = high + unpacked<T>(residual_[pass].z, residual_[pass].w);
        load_residual(part + 1, pass);
      }
      if (plain) {
        if (kind == Activation::Kind::relu) {
          low = activated(Activation::Kind::relu, low, 0, 0);
          high = activated(Activation::Kind::relu, high, 0, 0);
        }
        store(part, pass, low, high);
      } else {
        *staged(pass, 0) = low;
        *staged(pass, 1) = high;
      }
    }
    if (plain) return;
      // Their code is long: once. What a thread reads it has written.
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass)
      store(part, pass, g_.activation(*staged(pass, 0)), g_.activation(*staged(pass, 1)));
  }

  const WgmmaGemm& g_;
  unsigned char* staging_;
  int lane_;
  int first_pixel_ = 0, first_k_ = 0;
  uint4 residual_[passes];
};

/// A warpgroup: its half of every tile's pixels.
template <typename T, typename Block>
__device__ inline void consume(const WgmmaGemm& g, const Block& block) {
  constexpr int stages = Block::layout.stages, n = Block::shape.n, rows64 = Block::shape.m / 64 / wgmma_consumers;
  constexpr int rows64_bytes = 64 * wgmma_step * 2, terms_bytes = wgmma_terms * 2;
  // The same for all threads of a warp, and known to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - 4, 0), consumer = warp / 4;
  const unsigned lane = threadIdx.x % 32;
  const int half_m = consumer * (rows64 * 64);

  // To each block that brings filters here: it must not before all are done with the stage.
  const auto release = [&](int stage) {
    if constexpr (Block::cluster == 1) {
      if (lane == 0) arrive(block.empty(stage));
    } else {
      if (lane < Block::cluster) arrive_in_cluster(block.empty(stage), lane);
    }
  };

  wait_for_previous();
  Finisher<T, rows64, n> finisher(g, block.staging(warp));
  StageWalk<stages> at;
  float d[rows64][n / 2];
  for (int index = Block::first(); index < g.tiles; index += Block::step()) {
    const int tile_m = index / g.tiles_n;
    finisher.begin(Block::first_pixel(tile_m) + half_m + warp % 4 * 16, (index - tile_m * g.tiles_n) * n);
    int last = 0;
    for (int step = 0; step < g.steps; ++step) {
      wait_for_phase(block.full(at.stage), at.phase);
      const std::uint64_t a = wgmma_operand(block.pixels(at.stage)) + wgmma_behind(consumer * rows64 * rows64_bytes);
      const std::uint64_t b = wgmma_operand(block.filters(at.stage));
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < wgmma_step / wgmma_terms; ++i)
#pragma unroll
        for (int row = 0; row < rows64; ++row)
          wgmma<T, n>(d[row], a + wgmma_behind(row * rows64_bytes + i * terms_bytes), b + wgmma_behind(i * terms_bytes),
                      step > 0 || i > 0);
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
template <typename T, WgmmaTile tile, int cluster>
__global__ void __launch_bounds__(wgmma_threads, 1) wgmma_gemm_kernel(const __grid_constant__ WgmmaGemm g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = WgmmaBlock<tile, cluster>;
  const Block block{shared};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Block::layout.stages; ++stage) {
      init_barrier(block.full(stage), 1);
      init_barrier(block.empty(stage), wgmma_consumers * 4 * cluster);
    }
    publish_barriers();
  }
  if constexpr (cluster == 1)
    __syncthreads();
  else
    sync_cluster();
  if (threadIdx.x < 128) {
    give_up_registers<40>();
    if (threadIdx.x == 0)
      produce(g, block);
    else
      wait_for_previous();
    if constexpr (cluster > 1) sync_cluster();  // the others' consumers still arrive here
  } else {
    take_registers<232>();
    consume<T>(g, block);
    if constexpr (cluster > 1) sync_cluster();
  }
#endif
}

}  // namespace lenslet::cuda
