#pragma once
// The wgmma_halo kernel: wgmma_gemm's persistent blocks (wgmma_gemm.cuh) for overlapping windows. im2col mode loads
// every tap's windows anew (nine times the input for 3x3), which makes L2 and shared memory the bottleneck. Here TMA
// loads the halo tile of 64 windows once for a group of channels, and a tap's operand is a view of it: eights of pixels
// (UnitShape), shifted by the tap. Rows are swizzled by address, so that an operand may begin at any pixel. Filters
// come tap by tap through stages of their own, and stay where all of them have a stage.

#include "base/cuda/launch.h"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/wgmma_element.cuh"
#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_halo_plan.h"

namespace lenslet::cuda {

/// Kernel arguments. x, residual and y are NHWC with pixels at multiples of 16 bytes (aligned_nhwc).
struct WgmmaHalo {
  CUtensorMap halo_tiles{};  ///< of x, [N][H][W][C]: boxes are a unit's halo tile
  CUtensorMap filters{};     ///< [K][R*S][C]
  /// Of y and of the residual (may be y, or missing), [N][P][Q][k]: boxes are a part.
  CUtensorMap results{}, residuals{};
  UnitWalk walk;
  DeviceActivation activation;
  int units = 0, p = 0, k = 0;  ///< k: K with padding, which is written too
  int biases = 0;               ///< K
  // Of a set of groups: filters, packed filters, tiles along gemm_n, and offsets in the maps.
  int set_k = 0, set_filters = 0, set_tiles = 0, x_set = 0, y_set = 0;
  int x_image = 1, y_image = 1;  ///< image stride along the maps' last axes
  int pad_top = 0, pad_left = 0;
  int tiles = 0, tiles_n = 0;           ///< total; along gemm_n
  int k_groups = 0, r = 0, s = 0;       ///< groups of channels; filter size
  int line_offset = 0, tap_offset = 0;  ///< operand offsets in bytes of the next filter row and column
  int wide = 0, eights = 0;             ///< of UnitShape
  int halo_box = 0, halo_bytes = 0;     ///< of a halo tile: TMA box, and its slot
  int halo_stages = 0, filter_stages = 0, resident = 0;
  int filters_at = 0, staging_at = 0, barriers_at = 0;
  const float* bias = nullptr;  ///< may be null
  int adds_residual = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A part of a unit: a warp's 16 rows. Recomputed instead of stored, to save registers.
struct UnitPlace {
  int unit, part, set;
  __device__ UnitPlace behind(const WgmmaHalo&, int rows64) const { return {unit + rows64, part, set}; }
  /// End of the set's filters.
  __device__ int filters_end(const WgmmaHalo& g) const { return (set + 1) * g.set_k; }
  __device__ bool exists(const WgmmaHalo& g) const { return unit < g.units && g.walk.start(unit).p + line(g) < g.p; }
  __device__ void load(const WgmmaHalo& g, void* to, std::uint64_t* barrier, int k) const {
    const UnitStart at = start(g);
    tma_load(to, g.residuals, barrier, k - set * g.set_k, at.q, at.p, at.n);
  }
  __device__ void prefetch(const WgmmaHalo& g, int k) const {
    const UnitStart at = start(g);
    tma_prefetch(g.residuals, k - set * g.set_k, at.q, at.p, at.n);
  }
  __device__ void store(const WgmmaHalo& g, const void* from, int k) const {
    const UnitStart at = start(g);
    tma_store(g.results, from, k - set * g.set_k, at.q, at.p, at.n);
  }

 private:
  __device__ int line(const WgmmaHalo& g) const { return UnitShape::part_line(part, g.walk.unit_lines); }
  /// Coordinates in the maps of y and the residual.
  __device__ UnitStart start(const WgmmaHalo& g) const {
    const UnitStart at = g.walk.start(unit);
    return {at.q + UnitShape::part_column(part, g.wide), at.p + line(g), at.n * g.y_image + set * g.y_set};
  }
};

/// First unit, set and first filter of a tile.
struct HaloTileStart {
  int unit, set, filter;
  __device__ HaloTileStart(const WgmmaHalo& g, int index, int units, int n) {
    const int tile_m = index / g.tiles_n, beside = index - tile_m * g.tiles_n;
    unit = tile_m * units;
    set = g.set_tiles == g.tiles_n ? 0 : beside / g.set_tiles;
    filter = (beside - set * g.set_tiles) * n;
  }
};

/// A block: its shared memory layout and tiles.
template <typename T, int units, int n, int row_bytes>
struct HaloBlock {
  static constexpr WgmmaTileShape shape{64 * units, n};
  static constexpr bool for_residual = false;
  static constexpr int slots = halo_slots(WgmmaElement<T>::box_bytes(n)), filter_bytes = n * row_bytes;
  static_assert(filter_bytes % (8 * row_bytes) == 0);

  const WgmmaHalo& g;
  unsigned char* shared;

  __device__ unsigned char* halo_tile(int stage, int unit) const {
    return shared + (stage * units + unit) * g.halo_bytes;
  }
  __device__ unsigned char* filters(int stage) const { return shared + g.filters_at + stage * filter_bytes; }
  __device__ std::uint64_t* barriers() const { return reinterpret_cast<std::uint64_t*>(shared + g.barriers_at); }
  /// Barriers: a tile's halo tiles (or a tap's filters) have arrived; their readers are done.
  __device__ std::uint64_t* halo_full(int stage) const { return barriers() + stage; }
  __device__ std::uint64_t* halo_empty(int stage) const { return barriers() + g.halo_stages + stage; }
  __device__ std::uint64_t* full(int stage) const { return barriers() + 2 * g.halo_stages + stage; }
  __device__ std::uint64_t* empty(int stage) const { return full(stage) + g.filter_stages; }
  __device__ unsigned char* staging(int warp) const { return shared + g.staging_at + warp * halo_staging_bytes; }
  __device__ std::uint64_t* residuals(int warp) const { return full(0) + 2 * g.filter_stages + warp * slots; }
};

/// A tile's K groups and taps in order.
struct HaloKWalk {
  int group = 0, tap = 0;
  __device__ void next(const WgmmaHalo& g) {
    if (++tap < g.r * g.s) return;
    tap = 0;
    ++group;
  }
};

/// Producer: one thread, all TMA loads of a block.
template <typename T, int units, int n, int row_bytes>
__device__ inline void produce_halo_tiles(const WgmmaHalo& g, const HaloBlock<T, units, n, row_bytes>& block) {
  using Block = HaloBlock<T, units, n, row_bytes>;
  constexpr int channels = row_bytes / static_cast<int>(sizeof(T));
  constexpr int part_filters = WgmmaElement<T>::box_filters(n);
  prefetch_map(g.filters);
  prefetch_map(g.halo_tiles);
  const int steps = g.k_groups * g.r * g.s;
  const auto load_filters = [&](int stage, const HaloTileStart& tile, const HaloKWalk& k_walk) {
    arrive_expect_tx(block.full(stage), Block::filter_bytes);
    tma_load(block.filters(stage), g.filters, block.full(stage), k_walk.group * channels, k_walk.tap,
             tile.set * g.set_filters + tile.filter);
  };
  // Filters do not depend on the previous kernel.
  int early = steps < g.filter_stages ? steps : g.filter_stages;
  {
    const HaloTileStart tile(g, static_cast<int>(blockIdx.x), units, n);
    HaloKWalk k_walk;
    for (int stage = 0; stage < early; ++stage) {
      load_filters(stage, tile, k_walk);
      k_walk.next(g);
    }
  }
  wait_for_previous();
  fence_proxy_async_global();
  StageRing halo_tile, filter;
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const HaloTileStart tile(g, index, units, n);
    HaloKWalk k_walk;
    for (int group = 0; group < g.k_groups; ++group) {
      wait_parity(block.halo_empty(halo_tile.stage), halo_tile.phase ^ 1);  // all are empty at first
      std::uint64_t* const full = block.halo_full(halo_tile.stage);
      arrive_expect_tx(full, static_cast<unsigned>(units * g.halo_box));
      for (int unit = 0; unit < units; ++unit) {
        const UnitStart at = g.walk.start(tile.unit + unit);
        tma_load(block.halo_tile(halo_tile.stage, unit), g.halo_tiles, full, group * channels, at.q - g.pad_left,
                 at.p - g.pad_top, at.n * g.x_image + tile.set * g.x_set);
      }
      halo_tile.next(g.halo_stages);
      if (group == 0 && g.adds_residual != 0)
        for (int unit = 0; unit < units; ++unit)
          for (int part = 0; part < 4; ++part) {
            const UnitPlace place{tile.unit + unit, part, tile.set};
            if (!place.exists(g)) break;
            const int first_k = tile.set * g.set_k + tile.filter;
            for (int k = first_k; k < first_k + n && k < place.filters_end(g); k += part_filters) place.prefetch(g, k);
          }
      for (int tap = 0; tap < g.r * g.s; ++tap, k_walk.next(g)) {
        if (early > 0) {
          --early;
        } else {
          if (g.resident != 0) continue;
          wait_parity(block.empty(filter.stage), filter.phase ^ 1);
          load_filters(filter.stage, tile, k_walk);
        }
        filter.next(g.filter_stages);
      }
    }
  }
  let_next_start();
}

/// Consumer: a warpgroup, its half of every tile's units.
template <typename T, int units, int n, int row_bytes>
__device__ inline void consume_halo_tiles(const WgmmaHalo& g, const HaloBlock<T, units, n, row_bytes>& block) {
  using Block = HaloBlock<T, units, n, row_bytes>;
  constexpr int rows64 = units / wgmma_consumers;
  // Warp-uniform, and known to the compiler to be.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32 - 4, 0), consumer = warp / 4;
  const unsigned lane = threadIdx.x % 32;
  const auto release = [&](std::uint64_t* empty) {
    if (lane == 0) arrive(empty);
  };

  wait_for_previous();
  typename WgmmaElement<T>::template Epilogue<Block, WgmmaHalo, UnitPlace> epilogue(g, block, warp);
  const int taps = g.r * g.s;
  StageRing halo_tile, filter;
  typename WgmmaElement<T>::Accumulator d[rows64][n / 2];
  std::uint64_t a[rows64];
  const auto multiply = [&](int filter_stage, int offset, bool add) {
    const std::uint64_t b = wgmma_operand<row_bytes>(block.filters(filter_stage));
    const std::uint64_t behind = static_cast<std::uint64_t>(offset / 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < row_bytes / wgmma_k_bytes; ++i)
#pragma unroll
      for (int row = 0; row < rows64; ++row)
        wgmma<T, n>(d[row], a[row] + behind + wgmma_behind(i * wgmma_k_bytes), b + wgmma_behind(i * wgmma_k_bytes),
                    add || i > 0);
  };
  // Stages that products in flight read; -1: none.
  int last_filter = -1, last_halo_tile = -1;
  const auto release_last = [&] {
    if (last_filter >= 0) release(block.empty(last_filter));
    if (last_halo_tile >= 0) release(block.halo_empty(last_halo_tile));
    last_filter = last_halo_tile = -1;
  };
  bool first_tile = true;
  for (int index = static_cast<int>(blockIdx.x); index < g.tiles; index += static_cast<int>(gridDim.x)) {
    const HaloTileStart tile(g, index, units, n), next(g, index + static_cast<int>(gridDim.x), units, n);
    const int unit = consumer * rows64, part = warp % 4;
    epilogue.begin({tile.unit + unit, part, tile.set}, tile.set * g.set_k + tile.filter,
                   {next.unit + unit, part, next.set}, next.set * g.set_k + next.filter);
    if (g.resident != 0 && first_tile)
      for (int stage = 0; stage < g.filter_stages; ++stage) wait_parity(block.full(stage), 0);
    first_tile = false;
    for (int group = 0; group < g.k_groups; ++group) {
      if (g.halo_stages == 1) {  // free once no product is in flight
        wgmma_wait<0>();
        release_last();
      }
      wait_parity(block.halo_full(halo_tile.stage), halo_tile.phase);
#pragma unroll
      for (int row = 0; row < rows64; ++row)
        a[row] = wgmma_operand<row_bytes>(block.halo_tile(halo_tile.stage, consumer * rows64 + row), g.eights);
      if (g.resident != 0) {
        // All taps in one batch: with a barrier and a wait each they take at least 0.2 us.
        int stage = group * taps;
        for (int line = 0; line < g.r; ++line)
#pragma unroll 3
          for (int column = 0; column < g.s; ++column, ++stage)
            multiply(stage, line * g.line_offset + column * g.tap_offset, stage > 0);
        wgmma_fence();  // needed by the compiler after a loop of products, too
        wgmma_commit();
        wgmma_wait<1>();
        release_last();
      } else {
        int line = 0, column = 0, offset = 0;
        for (int tap = 0; tap < taps; ++tap) {
          wait_parity(block.full(filter.stage), filter.phase);
          multiply(filter.stage, offset, group > 0 || tap > 0);
          wgmma_commit();
          // The previous k-block is done.
          wgmma_wait<1>();
          release_last();
          last_filter = filter.stage;
          filter.next(g.filter_stages);
          offset += g.tap_offset;
          if (++column == g.s) {
            column = 0;
            offset = ++line * g.line_offset;
          }
        }
      }
      last_halo_tile = halo_tile.stage;
      halo_tile.next(g.halo_stages);
    }
    wgmma_wait<0>();
    release_last();
#pragma unroll
    for (int row = 0; row < rows64; ++row) wgmma_hold(d[row]);
    epilogue.finish(d);
  }
  epilogue.end();
}

#endif

/// Registers a thread: 168 at launch; the producer keeps 40, a consumer gets 232.
template <typename T, int units, int n, int row_bytes>
__global__ void __launch_bounds__(wgmma_threads(wgmma_consumers), 1)
    wgmma_halo_kernel(const __grid_constant__ WgmmaHalo g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  using Block = HaloBlock<T, units, n, row_bytes>;
  const Block block{g, shared};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < g.halo_stages; ++stage) {
      init_mbarrier(block.halo_full(stage), 1);
      init_mbarrier(block.halo_empty(stage), wgmma_consumers * 4);
    }
    for (int stage = 0; stage < g.filter_stages; ++stage) {
      init_mbarrier(block.full(stage), 1);
      init_mbarrier(block.empty(stage), wgmma_consumers * 4);
    }
    init_residual_barriers(block);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_up_registers<40>();
    if (threadIdx.x == 0)
      produce_halo_tiles<T>(g, block);
    else
      wait_for_previous();
  } else {
    take_registers<232>();
    consume_halo_tiles<T>(g, block);
  }
#endif
}

using WgmmaHaloKernel = void (*)(WgmmaHalo);
/// Kernel of a plan; each T is compiled in its own file.
template <typename T>
WgmmaHaloKernel wgmma_halo_kernel_for(const WgmmaHaloPlan& plan);

/// Defines it.
template <typename T>
WgmmaHaloKernel find_wgmma_halo_kernel(const WgmmaHaloPlan& plan) {
  const auto of_rows = [&]<int units, int n>() -> WgmmaHaloKernel {
    return plan.row_bytes == 128  ? wgmma_halo_kernel<T, units, n, 128>
           : plan.row_bytes == 64 ? wgmma_halo_kernel<T, units, n, 64>
                                  : wgmma_halo_kernel<T, units, n, 32>;
  };
  const auto few_filters = [&]<int units>() -> WgmmaHaloKernel {
    if constexpr (units == 4 && 16 % WgmmaElement<T>::box_filters(16) == 0)
      return of_rows.template operator()<units, 16>();
    return nullptr;
  };
  const auto of_filters = [&]<int units>() -> WgmmaHaloKernel {
    return plan.tile.filters == 128  ? of_rows.template operator()<units, 128>()
           : plan.tile.filters == 96 ? of_rows.template operator()<units, 96>()
           : plan.tile.filters == 64 ? of_rows.template operator()<units, 64>()
           : plan.tile.filters == 32 ? of_rows.template operator()<units, 32>()
                                     : few_filters.template operator()<units>();
  };
  return plan.tile.units == 4 ? of_filters.template operator()<4>() : of_filters.template operator()<2>();
}

}  // namespace lenslet::cuda
