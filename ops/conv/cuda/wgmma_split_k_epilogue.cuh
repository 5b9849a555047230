#pragma once
// Reduction and epilogue of cluster split-K (wgmma_split_k, wgmma_halo_split_k), and the start of both kernels. Each
// block owns an equal share of the tile, in fragments of 16 pixels by 16 filters. Every block stores its partial sums
// of a fragment into the owner's shared memory in register layout, 16 bytes a thread, coalesced. After one cluster
// barrier the owner adds them in rank order from its own memory, so that no block waits at its end. A warp then has a
// fragment in accumulator layout, runs the epilogue, and transposes it through shared memory to 16 bytes of y a thread.
// float32 needs no transposition: wgmma_tf32's filters are permuted (tf32_filter_at) so that a thread has 16 bytes of
// two pixels; a fragment's filters are then fours of a box of 32, and two fragments fill its sectors.
//
// Remote stores instead of loads: only the barrier waits for the latency between blocks.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/convert.h"
#include "base/cuda/cluster.cuh"
#include "base/cuda/half_mma.cuh"
#include "base/cuda/launch.h"
#include "base/cuda/mma.cuh"
#include "base/cuda/vector.cuh"
#include "base/cuda/wgmma.cuh"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// 16 consecutive pixels of accumulators. Transposed: filters are rows, pixels columns.
struct PixelRows {
  static constexpr bool turned = false;
  using Begin = int;  // of a tile
  int pixel;
  __device__ static PixelRows at(int tile, int row) { return {tile + row}; }
  template <typename Call>
  __device__ bool exists(const Call& g, int row) const {
    return pixel + row < g.pixels;
  }
  template <typename Call>
  __device__ int index(const Call&, int row) const {
    return pixel + row;
  }
  __device__ static SplitKShare share(int m, int n, int split_k_log2) { return share_of(m, n, split_k_log2); }
};

/// A consumer warp's reduction and epilogue. `Rows` maps 16 rows of accumulators (columns, if transposed) to pixels,
/// and fragments to ranks.
template <typename T, typename Block, typename Call, typename Rows = PixelRows>
class SplitKEpilogue {
  static constexpr int n = Block::shape.n, m = Block::shape.m;
  static constexpr int fragments_n = n / fragment_filters;  ///< of 16 pixels: a warp's, and the most it finishes
  static constexpr int acc_per_fragment = 8;                ///< of a thread
  static constexpr bool halves = is_half<T>;
  static constexpr bool turned = Rows::turned;
  /// What a thread stores of a fragment: 8 filters of a pixel; float32: 4 of each of two pixels.
  using Stored = std::conditional_t<halves, uint4, Eight>;
  /// Units whose residuals are loaded early: for 128x128 floats registers allow half of them.
  static constexpr int early = halves || fragments_n <= 4 ? fragments_n : fragments_n / 2;

 public:
  /// Call after wait_for_previous(). Biases and residuals are loaded during the main loop.
  __device__ SplitKEpilogue(const Call& g, const Block& block, int warp, int rank, typename Rows::Begin begin,
                            int first_k)
      : g_(g),
        acc_(block.acc()),
        share_(Rows::share(m, n, g.split_k_log2)),
        clamp_{g.activation.clamp().low, g.activation.clamp().high},
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rank_(rank),
        first_slot_(share_.first(warp)),
        slots_(min(share_.of_warp(), share_.each() - first_slot_)),
        begin_(begin),
        first_k_(first_k) {
#pragma unroll
    for (int i = 0; i < fragments_n; ++i) {
      bias_[i] = {};
      if (i < early) residual_[i] = {};
    }
    // Separate path: bounds checks of the tail take 0.1 us of 2.
    if (g.bias != nullptr && g.padding == 0) load_biases<true>();
    if (g.bias != nullptr && g.padding != 0) load_biases<false>();
#pragma unroll
    for (int i = 0; i < early; ++i)
      if (i < slots_ && g.residual != nullptr) load_residual(place_of(first_slot_ + i), residual_[i]);
  }

  /// Call when this block's accumulators are final. Warps without accumulators call wait_for_acc().
  __device__ void finish(const float (&d)[n / 2]) {
    if (g_.split_k_log2 > 0)
      give_to_owners(d);
    else if constexpr (turned)
      keep(d);
      // Not unrolled, to keep the code small; register indices are constants within the body.
#pragma unroll 1
    for (int i = 0; i < slots_; ++i) {
      if (!exists(share_.fragment(rank_, first_slot_ + i))) continue;
      float v[acc_per_fragment];
      float4 bias{};
      Stored residual{};
#pragma unroll
      for (int known = 0; known < fragments_n; ++known)
        if (i == known) {
          bias = bias_[known];
          if (known < early) residual = residual_[known];
#pragma unroll
          for (int j = 0; j < acc_per_fragment && !turned; ++j) v[j] = d[known * acc_per_fragment + j];
        }
      if (early < fragments_n && i >= early && g_.residual != nullptr)
        load_residual(place_of(first_slot_ + i), residual);
      if (turned || g_.split_k_log2 > 0) add_up(first_slot_ + i, v);
      finish_fragment(first_slot_ + i, v, bias, residual);
    }
  }

 private:
  /// A fragment's pixels and first filter in y.
  struct Place {
    Rows rows;
    int k;
  };
  __device__ Place begin_of(int fragment) const {
    const int row = turned ? fragment % fragments_n : fragment / fragments_n,
              filters = turned ? fragment / fragments_n : fragment % fragments_n;
    return {Rows::at(begin_, row * fragment_rows),
            first_k_ + (halves ? filters * fragment_filters : tf32_fragment_filter(filters, 0))};
  }
  __device__ Place place_of(int slot) const { return begin_of(share_.fragment(rank_, slot)); }
  /// Whether any of a fragment is inside of y. Others are skipped: a 7x7 image has 49 of 64 pixels.
  __device__ bool exists(int fragment) const {
    const Place begin = begin_of(fragment);
    return begin.rows.exists(g_, 0) && begin.k < g_.k;
  }
  /// The pixel of which a thread stores 8 filters; float32: 4 of it and 4 of the one 8 below.
  __device__ int row() const { return halves ? lane_ / 2 : turned ? lane_ % 4 * 2 + lane_ / 4 % 2 : lane_ / 4; }
  __device__ int eight() const { return halves ? lane_ % 2 : turned ? lane_ / 8 : lane_ % 4; }
  __device__ bool exists(const Place& place, int rows_below = 0) const {
    return place.rows.exists(g_, row() + rows_below) && place.k + eight() * 8 < g_.k;
  }
  __device__ std::size_t offset(const Place& place, int pitch, int rows_below = 0) const {
    return static_cast<std::size_t>(place.rows.index(g_, row() + rows_below)) * static_cast<std::size_t>(pitch) +
           static_cast<std::size_t>(place.k + eight() * 8);
  }

  /// Biases of a thread's filters (two, for transposed halves). `whole`: K fills the vectors.
  template <bool whole>
  __device__ float4 load_bias(const Place& place) const {
    if constexpr (halves && turned) {
      const auto of_row = [&](int k) { return k < g_.k - g_.padding ? g_.bias[k] : 0.0F; };
      return {of_row(place.k + lane_ / 4), of_row(place.k + lane_ / 4 + 8), 0, 0};
    } else if constexpr (halves) {
      const int k = place.k + lane_ % 4 * 2;
      float2 low{}, high{};
      if constexpr (whole) {
        if (k < g_.k) low = *reinterpret_cast<const float2*>(g_.bias + k);
        if (k + 8 < g_.k) high = *reinterpret_cast<const float2*>(g_.bias + k + 8);
      } else {
        low = pair_of(g_.bias, k, g_.k - g_.padding);
        high = pair_of(g_.bias, k + 8, g_.k - g_.padding);
      }
      return {low.x, low.y, high.x, high.y};
    } else {
      const int k = place.k + eight() * 8;
      if constexpr (whole) return k < g_.k ? *reinterpret_cast<const float4*>(g_.bias + k) : float4{};
      return four_of(g_.bias, k, g_.k - g_.padding);
    }
  }
  template <bool whole>
  __device__ void load_biases() {
#pragma unroll
    for (int i = 0; i < fragments_n; ++i)
      if (i < slots_) bias_[i] = load_bias<whole>(place_of(first_slot_ + i));
  }
  __device__ void load_residual(const Place& place, Stored& residual) const {
    const T* const from = static_cast<const T*>(g_.residual);
    if constexpr (halves) {
      if (exists(place)) residual = *reinterpret_cast<const uint4*>(from + offset(place, g_.k));
    } else {
      if (exists(place)) residual.low = *reinterpret_cast<const float4*>(from + offset(place, g_.k));
      if (exists(place, 8)) residual.high = *reinterpret_cast<const float4*>(from + offset(place, g_.k, 8));
    }
  }
  /// A thread's share of `source`'s partial sums of the fragment in this slot: 16 bytes, and 16 more at +512 bytes.
  __device__ float4* part(int source, int slot) const {
    const int fragment = share_.fragment(source, slot);
    return reinterpret_cast<float4*>(acc_ + fragment * fragment_bytes) + lane_;
  }

  __device__ void give_to_owners(const float (&d)[n / 2]) const {
    __syncwarp();
    wait_for_cluster();  // all blocks have started
#pragma unroll
    for (int i = 0; i < fragments_n; ++i) {
      const int fragment = warp_ * fragments_n + i, owner = share_.owner(fragment);
      if (!exists(fragment)) continue;
      float4* const to = part(rank_, share_.slot(fragment));
      const float* const v = d + i * acc_per_fragment;
      store_in_block(owner, to, {v[0], v[1], v[2], v[3]});
      store_in_block(owner, to + 32, {v[4], v[5], v[6], v[7]});
    }
    sync_cluster();
  }

  /// Without split-K transposed accumulators go through shared memory, too: indexing seven fragments' registers is
  /// slower.
  __device__ void keep(const float (&d)[n / 2]) const {
#pragma unroll
    for (int i = 0; i < fragments_n; ++i) {
      float4* const to = part(0, first_slot_ + i);
      const float* const v = d + i * acc_per_fragment;
      to[0] = {v[0], v[1], v[2], v[3]};
      to[32] = {v[4], v[5], v[6], v[7]};
    }
  }

  __device__ void add_up(int slot, float (&v)[acc_per_fragment]) const {
    const float4 low = part(0, slot)[0], high = part(0, slot)[32];
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
    if (turned && g_.split_k_log2 == 0) return;
#pragma unroll 1
    for (int pair = 0; pair < 1 << g_.split_k_log2; pair += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (pair + i == 0) continue;
        const float4* const from = part(pair + i, slot);
        const float4 more_low = from[0], more_high = from[32];
        v[0] += more_low.x, v[1] += more_low.y, v[2] += more_low.z, v[3] += more_low.w;
        v[4] += more_high.x, v[5] += more_high.y, v[6] += more_high.z, v[7] += more_high.w;
      }
    }
  }

  /// 16 bits. The transposition reuses the fragment's first partial sums, which only this warp reads.
  __device__ void finish_fragment(int slot, float (&v)[acc_per_fragment], const float4& bias,
                                  const uint4& residual) const {
    unsigned char* const in_order = acc_ + slot * fragment_bytes;
    auto* const mine = reinterpret_cast<uint4*>(in_order + fragment_offset(row(), eight()));
    // Matrix order: rows 0-7 and 8-15 of the first eight filters, then of the second; transposed: both eights of rows
    // 0-7, then of 8-15.
    unsigned char* const matrix_row = in_order + (turned ? fragment_offset(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2)
                                                         : fragment_offset(lane_ % 16, lane_ / 16));
    const Place place = place_of(slot);

#pragma unroll
    for (int j = 0; j < acc_per_fragment; j += 4) {
      if constexpr (turned) {
        v[j] += bias.x, v[j + 1] += bias.x, v[j + 2] += bias.y, v[j + 3] += bias.y;
      } else {
        const float even = j == 0 ? bias.x : bias.z, odd = j == 0 ? bias.y : bias.w;
        v[j] += even, v[j + 1] += odd, v[j + 2] += even, v[j + 3] += odd;
      }
    }
    __syncwarp();
    if (g_.residual != nullptr) {
      *mine = residual;
      __syncwarp();
      std::uint32_t words[4];
      if constexpr (turned)
        ldmatrix_trans(words, matrix_row);
      else
        ldmatrix(words, matrix_row);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 added = widened_pair<T>(words[i]);
        v[i * 2] += added.x;
        v[i * 2 + 1] += added.y;
      }
      __syncwarp();
    }
    if (!g_.activation.is_clamp()) g_.activation.apply_for_halves(v);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = clamp_(narrowed_pair<T>(v[i * 2], v[i * 2 + 1]));
    if constexpr (turned)
      stmatrix_trans(matrix_row, words);
    else
      stmatrix(matrix_row, words);
    __syncwarp();
    if (exists(place)) *reinterpret_cast<uint4*>(static_cast<T*>(g_.y) + offset(place, g_.y_pixel)) = *mine;
  }

  /// float32, in the order of wgmma_tf32's epilogue, so that the bits equal those without split-K.
  __device__ void finish_fragment(int slot, float (&v)[acc_per_fragment], const float4& bias,
                                  const Eight& residual) const {
    const Place place = place_of(slot);
    if constexpr (turned) {
      // A thread has two filters of two pixels and two of those 8 on; its neighbour 4 lanes on has the filters between.
      // They swap, so that one has all four filters of the even pixels, the other of the odd ones.
      const bool odd = lane_ / 4 % 2 != 0;
      float other[acc_per_fragment / 2];
#pragma unroll
      for (int i = 0; i < acc_per_fragment; i += 2)
        other[i / 2] = __shfl_xor_sync(0xFFFFFFFFU, odd ? v[i] : v[i + 1], 4);
      // v[0], v[1], v[4], v[5] are of one pixel; v[2], v[3], v[6], v[7] of the one 8 on.
      const float first[] = {odd ? v[1] : v[0], odd ? v[3] : v[2], odd ? v[5] : v[4], odd ? v[7] : v[6]};
      v[0] = odd ? other[0] : first[0], v[1] = odd ? first[0] : other[0];
      v[4] = odd ? other[1] : first[1], v[5] = odd ? first[1] : other[1];
      v[2] = odd ? other[2] : first[2], v[3] = odd ? first[2] : other[2];
      v[6] = odd ? other[3] : first[3], v[7] = odd ? first[3] : other[3];
    }
    float4 low = float4{v[0], v[1], v[4], v[5]} + bias, high = float4{v[2], v[3], v[6], v[7]} + bias;
    if (g_.residual != nullptr) {
      low = low + residual.low;
      high = high + residual.high;
    }
    if (g_.activation.is_clamp()) {
      low = {clamp_(low.x), clamp_(low.y), clamp_(low.z), clamp_(low.w)};
      high = {clamp_(high.x), clamp_(high.y), clamp_(high.z), clamp_(high.w)};
    } else {
      // Other activations are long code: not unrolled.
#pragma unroll 1
      for (int i = 0; i < 2; ++i) {
        const float4 done = g_.activation(low);
        low = high;
        high = done;
      }
    }
    T* const y = static_cast<T*>(g_.y);
    if (exists(place)) *reinterpret_cast<float4*>(y + offset(place, g_.y_pixel)) = low;
    if (exists(place, 8)) *reinterpret_cast<float4*>(y + offset(place, g_.y_pixel, 8)) = high;
  }

  const Call& g_;
  unsigned char* acc_;
  decltype(Rows::share(0, 0, 0)) share_;
  std::conditional_t<halves, PairClamp<T>, Clamp> clamp_;
  int warp_, lane_, rank_;
  int first_slot_, slots_;  // of this warp
  typename Rows::Begin begin_;
  int first_k_;
  float4 bias_[fragments_n];  // of the thread's accumulators
  Stored residual_[early];    // of its stores
};

/// Barriers of warps without accumulators, which the others' barriers count on.
template <typename Call>
__device__ inline void wait_for_acc(const Call& g) {
  __syncwarp();
  if (g.split_k_log2 == 0) return;
  wait_for_cluster();
  leave_cluster();
  wait_for_cluster();
}

/// A block's split: k-blocks (wgmma_halo: groups) [first, last) of a tile's `steps`. Blocks of a tile (a cluster) are
/// adjacent, tiles of the same pixels, too.
struct SplitWork {
  int tile_m, rank, first_k, first, last;

  template <typename Call>
  __device__ SplitWork(const Call& g, int steps, int tile_filters) {
    const int block = static_cast<int>(blockIdx.x), tile = block >> g.split_k_log2;
    tile_m = tile / g.tiles_n;
    rank = block & ((1 << g.split_k_log2) - 1);
    first_k = (tile - tile_m * g.tiles_n) * tile_filters;
    first = first_step(rank, steps, g.split_k_log2);
    last = first_step(rank + 1, steps, g.split_k_log2);
  }
};

/// A kernel: the consumers' threads, then the producer's, then others, which run `others`.
template <typename T, int consumers, typename Call, typename Block, typename Others>
__device__ inline void run_split(const Call& g, const Block& block, const Others& others) {
  if (threadIdx.x == consumers) {
    block.init_barriers(g);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (g.split_k_log2 > 0) leave_cluster();  // arrive; waited for before partial sums are sent
  if (threadIdx.x >= consumers) {
    if (threadIdx.x == consumers)
      produce_split(g, block);
    else
      others();
    wait_for_acc(g);
  } else {
    consume_split<T>(g, block);
  }
}
/// The same where the others are the rest of the producer's warp, which wait.
template <typename T, int consumers, typename Call, typename Block>
__device__ inline void run_split(const Call& g, const Block& block) {
  run_split<T, consumers>(g, block, [] { wait_for_previous(); });
}

#endif

}  // namespace lenslet::cuda
