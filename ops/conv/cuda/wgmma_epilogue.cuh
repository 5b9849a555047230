#pragma once
// Epilogue of wgmma_gemm: bias, residual and activation on the accumulators in registers; then a warp writes boxes of
// 16 pixels by 64 or 32 filters, in 16 bits, to shared memory and TMA stores them. TMA loads the residual into the
// slots that its results will leave by. Warps wait only for TMA and multiply the next tile meanwhile.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/half_mma.cuh"
#include "base/cuda/mma.cuh"
#include "ops/conv/cuda/box_epilogue.cuh"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A consumer warp's epilogue. Its results leave in boxes of 16 pixels by `box` filters, which rotate through the
/// warp's slots in shared memory; boxes of the same pixels follow each other. A part is the boxes that are rounded
/// together and stored as one bulk group of the first lane, even where they lie outside of y.
///
/// Where gemm_k is short the kernel spends most of its time here with two warps a scheduler, so dependency chains
/// count: parts are unrolled and wide, and biases are loaded during the main loop. One box at a time in a loop with
/// guarded biases: 64x16x112x112 -> 96, 1x1, 75.6 us.
template <typename T, typename Block, typename Call, typename Place = PixelPlace>
class EpilogueStore
    : public BoxEpilogue<Block, Call, Place, staged_filters(Block::shape.n), staged_box_bytes(Block::shape.n)> {
  static constexpr int n = Block::shape.n, box = staged_filters(n), box_bytes = staged_box_bytes(n);
  using Base = BoxEpilogue<Block, Call, Place, box, box_bytes>;
  using Base::ahead, Base::boxes, Base::boxes_n, Base::rows64, Base::slots;
  using Base::exists, Base::filter, Base::place;
  using Base::first_, Base::first_k_, Base::g_, Base::lane_, Base::staging_;
  static constexpr bool odd = box % 16 != 0;  // a last eight of filters without a partner
  /// Threads have the registers of a block with two consumers.
  static constexpr bool ample = Block::shape.consumers <= wgmma_consumers;
  /// Boxes of a part; one with a residual.
  static constexpr int wide = Block::for_residual || !ample ? 1 : wide_boxes(n, slots);
  /// A thread with spare registers keeps a tile's biases: the next tile's are often the same.
  static constexpr bool holds_bias = holds_biases(Block::shape);
  static constexpr int held = holds_bias ? n / 8 : 1;

 public:
  /// Call after wait_for_previous().
  __device__ EpilogueStore(const Call& g, const Block& block, int warp)
      : Base(g, block, warp), clamp_(g.activation.clamp().low, g.activation.clamp().high) {
    // Matrix order of ldmatrix: rows 0-7 and 8-15 of an eight of filters, then of the next.
    lane_offset_ = staged_offset(lane_ % 16, lane_ / 16, box);
    this->begin_copies();
  }

  /// Begins a tile at `first`, followed by `next` if that exists. Biases and first residuals are loaded during the main
  /// loop.
  __device__ void begin(const Place& first, int first_k, const Place& next, int next_k) {
    if constexpr (holds_bias)
      if (first_k != first_k_) load_bias<n>(first_k, bias_);
    Base::begin(first, first_k, next, next_k, [this](int at) { return slot_behind(at); });
  }

  /// Call when all accumulators are final.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    if (g_.activation.is_clamp()) {
      if (wide > 1 && g_.adds_residual == 0)
        finish_clamped<wide>(d);
      else
        finish_clamped<1>(d);
    } else {
      // Not unrolled, to keep the code small.
#pragma unroll 1
      for (int at = 0; at < boxes; ++at) {
        float v[box / 2];
        float2 bias[box / 8];
        if constexpr (!holds_bias) find_bias<1>(at, bias);
#pragma unroll
        for (int known = 0; known < boxes; ++known)  // register indices must be constants
          if (at == known) {
            if constexpr (holds_bias) find_bias<1>(known, bias);
            take_acc<1>(known, d, bias, v);
          }
        finish_part<1, true>(at, v);
      }
    }
  }

 private:
  /// Slot of the box `count` after the one finished next.
  __device__ int slot_behind(int count) const {
    const int slot = slot_ + count;
    return slot < slots ? slot : slot - slots;
  }

  /// Biases of `count` filters from `first` on: two of each eight a thread.
  template <int count>
  __device__ void load_bias(int first, float2 (&bias)[count / 8]) const {
#pragma unroll
    for (int eight = 0; eight < count / 8; ++eight) bias[eight] = {};
    if (g_.bias == nullptr) return;
    const int own = first + lane_ % 4 * 2;
    if (first + count <= g_.biases) {
      const float2* const from = reinterpret_cast<const float2*>(g_.bias + own);
#pragma unroll
      for (int eight = 0; eight < count / 8; ++eight) bias[eight] = from[eight * 4];
    } else {
#pragma unroll
      for (int eight = 0; eight < count / 8; ++eight) bias[eight] = pair_of(g_.bias, own + eight * 8, g_.biases);
    }
  }

  /// Biases of `count` boxes from this one on: kept, or loaded now.
  template <int count>
  __device__ void find_bias(int at, float2 (&bias)[count * box / 8]) const {
    if constexpr (holds_bias) {
#pragma unroll
      for (int i = 0; i < count * box / 8; ++i) bias[i] = bias_[at % boxes_n * (box / 8) + i];
    } else {
      load_bias<count * box>(filter(at), bias);
    }
  }
  template <int count>
  __device__ void take_acc(int at, const float (&d)[rows64][n / 2], const float2 (&bias)[count * box / 8],
                           float (&v)[count * box / 2]) const {
#pragma unroll
    for (int i = 0; i < count * box / 2; ++i)
      v[i] = d[at / boxes_n][at % boxes_n * (box / 2) + i] + (i % 2 == 0 ? bias[i / 4].x : bias[i / 4].y);
  }

  /// Parts of `count` boxes from this one on, biases given; the next part's are loaded meanwhile.
  template <int count, int at>
  __device__ void finish_clamped(const float (&d)[rows64][n / 2], const float2 (&bias)[count * box / 8]) {
    float v[count * box / 2];
    take_acc<count>(at, d, bias, v);
    if constexpr (at + count < boxes) {
      constexpr bool meanwhile = box <= 96;  // or registers run out
      float2 next[count * box / 8];
      if constexpr (meanwhile) find_bias<count>(at + count, next);
      finish_part<count, false>(at, v);
      if constexpr (!meanwhile) find_bias<count>(at + count, next);
      finish_clamped<count, at + count>(d, next);
    } else {
      finish_part<count, false>(at, v);
    }
  }
  template <int count>
  __device__ void finish_clamped(const float (&d)[rows64][n / 2]) {
    float2 bias[count * box / 8];
    find_bias<count>(0, bias);
    finish_clamped<count, 0>(d, bias);
  }

  /// Part of `count` boxes from this one on, if the first of them exists.
  template <int count, bool activates>
  __device__ void finish_part(int at, float (&v)[count * box / 2]) {
    const bool there = exists(at);
    if (there) {
      unsigned char* const staged = staging_ + slot_ * box_bytes;
      // Rows of a pair of eights of a box.
      const auto row = [&](int pair) {
        return odd ? staged + staged_behind(lane_offset_, pair, box)
                   : staged + pair / (box / 16) * box_bytes + staged_behind(lane_offset_, pair % (box / 16), box);
      };
      if (count == 1 && g_.adds_residual != 0) {
        this->wait_for_residual(slot_, phases_);
#pragma unroll
        for (int pair = 0; pair < count * box / 16; ++pair) {
          std::uint32_t words[4];
          ldmatrix(words, row(pair));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 residual = widened_pair<T>(words[i]);
            v[pair * 8 + i * 2] += residual.x;
            v[pair * 8 + i * 2 + 1] += residual.y;
          }
        }
        if constexpr (odd) {
          std::uint32_t words[2];
          ldmatrix(words, row(box / 16));
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float2 residual = widened_pair<T>(words[i]);
            v[box / 16 * 8 + i * 2] += residual.x;
            v[box / 16 * 8 + i * 2 + 1] += residual.y;
          }
        }
      } else if (lane_ == 0) {
        tma_wait_read<slots / count - 1>();
      }
      __syncwarp();

      if constexpr (activates) g_.activation.apply_for_halves(v);
#pragma unroll
      for (int pair = 0; pair < count * box / 16; ++pair) {
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = clamp_(narrowed_pair<T>(v[pair * 8 + i * 2], v[pair * 8 + i * 2 + 1]));
        stmatrix(row(pair), words);
      }
      if constexpr (odd) {
        constexpr int last = box / 16 * 8;
        const std::uint32_t words[2]{clamp_(narrowed_pair<T>(v[last], v[last + 1])),
                                     clamp_(narrowed_pair<T>(v[last + 2], v[last + 3]))};
        stmatrix(row(box / 16), words);
      }
      fence_proxy_async_shared();
      __syncwarp();
    }
    if (lane_ == 0) {
      if (there)
#pragma unroll
        for (int i = 0; i < count; ++i)
          if (filter(at + i) < first_.filters_end(g_))
            place(at).store(g_, staging_ + (slot_ + i) * box_bytes, filter(at + i));
      tma_commit();
      if (count == 1 && g_.adds_residual != 0)
        this->load_residual(at + ahead, [this](int) { return slot_behind(ahead); });
    }
    __syncwarp();
    slot_ = slot_behind(count);
  }

  int lane_offset_;
  PairClamp<T> clamp_;
  float2 bias_[held];    // of the tile, where kept
  int slot_ = 0;         // of the box finished next
  unsigned phases_ = 0;  // of residuals
};

#endif

}  // namespace lenslet::cuda
