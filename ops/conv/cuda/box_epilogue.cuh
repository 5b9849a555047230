#pragma once
// What the epilogues of persistent wgmma kernels share for all element types (WgmmaElement): results leave by TMA, as
// boxes of 16 pixels in shared memory, and a residual comes by the same boxes.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/tma.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Initialises the barriers: one thread, with the block's others.
template <typename Block>
__device__ inline void init_residual_barriers(const Block& block) {
  for (int i = 0; i < Block::shape.consumers * 4 * Block::slots; ++i) init_mbarrier(block.residuals(0) + i, 1);
}

/// Position of a part in [pixels][k]: 16 consecutive pixels.
struct PixelPlace {
  int pixel;
  /// The position 64 * count rows of accumulators further.
  template <typename Call>
  __device__ PixelPlace behind(const Call&, int rows64) const {
    return {pixel + rows64 * 64};
  }
  template <typename Call>
  __device__ bool exists(const Call& g) const {
    return pixel < g.pixels;
  }
  /// End of the filters.
  template <typename Call>
  __device__ int filters_end(const Call& g) const {
    return g.k;
  }
  template <typename Call>
  __device__ void load(const Call& g, void* to, std::uint64_t* barrier, int k) const {
    tma_load(to, g.residuals_or_tails, barrier, k, pixel);
  }
  template <typename Call>
  __device__ void store(const Call& g, const void* from, int k) const {
    tma_store(g.results, from, k, pixel);
  }
};

/// Of a consumer warp's epilogue, for any element type: the boxes of its accumulators, their slots in shared memory,
/// and the residual, which TMA loads into the slot that the results will leave by. Boxes of the same pixels follow each
/// other; `box` is in filters.
template <typename Block, typename Call, typename Place, int box, int box_bytes>
class BoxEpilogue {
 public:
  /// After the last tile: waits until shared memory may be freed.
  __device__ void end() const {
    if (lane_ == 0) tma_wait();
    __syncwarp();
  }

 protected:
  static constexpr int n = Block::shape.n, rows64 = Block::shape.m / 64 / Block::shape.consumers;
  static constexpr int boxes_n = n / box, boxes = rows64 * boxes_n;
  static constexpr int slots = Block::slots;
  /// Boxes that a residual is loaded ahead, into all slots but the last one stored; the next tile's where this one has
  /// no more. It comes from memory: prefetched into L2 a tile ahead (17 MB over all blocks with 128x256 floats) it
  /// seems evicted before use (64x64x56x56 -> 256, 1x1, TF32: 230 us with, 172 without).
  static constexpr int ahead = slots - 1 < boxes ? slots - 1 : boxes;

  __device__ BoxEpilogue(const Call& g, const Block& block, int warp)
      : g_(g),
        staging_(block.staging(warp)),
        barriers_(block.residuals(warp)),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  /// Call once, before the first tile.
  __device__ void begin_copies() const {
    if (lane_ == 0) {
      prefetch_map(g_.results);
      if (g_.adds_residual != 0) fence_proxy_async_global();
    }
    __syncwarp();
  }

  /// Begins a tile at `first`, followed by `next` if that exists. `slot` gives a box's.
  template <typename Slot>
  __device__ void begin(const Place& first, int first_k, const Place& next, int next_k, const Slot& slot) {
    const bool under_way = first_k_ >= 0;
    first_ = first;
    next_ = next;
    next_k_ = next_k;
    first_k_ = first_k;
    if (g_.adds_residual == 0 || under_way) return;
    if (lane_ == 0)
      for (int at = 0; at < ahead; ++at) load_residual(at, slot);
    __syncwarp();
  }

  __device__ Place place(int at) const { return first_.behind(g_, at / boxes_n); }
  __device__ int filter(int at) const { return first_k_ + at % boxes_n * box; }
  __device__ bool exists(int at) const {
    return at < boxes && filter(at) < first_.filters_end(g_) && place(at).exists(g_);
  }
  /// First lane: loads a box's residual, once the box `ahead` of it, or an earlier one of another tile, was committed
  /// last.
  template <typename Slot>
  __device__ void load_residual(int at, const Slot& slot_of) const {
    const Place from = at < boxes ? place(at) : next_.behind(g_, (at - boxes) / boxes_n);
    const int k = at < boxes ? filter(at) : next_k_ + (at - boxes) % boxes_n * box;
    if (k >= from.filters_end(g_) || !from.exists(g_)) return;
    tma_wait_read<1>();  // until TMA has read the slot's previous results
    const int slot = slot_of(at);
    arrive_expect_tx(barriers_ + slot, box_bytes);
    from.load(g_, staging_ + slot * box_bytes, barriers_ + slot, k);
  }
  /// `phases`: parities of barriers_, a bit each.
  __device__ void wait_for_residual(int slot, unsigned& phases) const {
    wait_parity(barriers_ + slot, phases >> slot & 1);
    phases ^= 1U << slot;
    __syncwarp();
  }

  const Call& g_;
  unsigned char* staging_;
  std::uint64_t* barriers_;  // one a slot
  int lane_;
  Place first_{}, next_{};
  int first_k_ = -1, next_k_ = 0;
};

#endif

}  // namespace lenslet::cuda
