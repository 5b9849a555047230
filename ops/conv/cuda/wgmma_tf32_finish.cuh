#pragma once
// Epilogue of TF32 kernels with float32 results: wgmma_finish.cuh for floats.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/launch.h"
#include "base/cuda/tensor_copy.cuh"
#include "base/cuda/vector.cuh"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/conv/cuda/wgmma_finish.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A consumer warp's epilogue, as wgmma_gemm's (wgmma_finish.cuh) for floats. Parts of the same pixels follow each
/// other. Each takes the next of the warp's buffers and is one bulk group of the first lane, even where it lies outside
/// of y.
template <typename Block, typename Call, typename Place = PixelPlace>
class Tf32Finisher {
  static constexpr int n = Block::shape.n, rows64 = Block::shape.m / 64 / Block::shape.consumers;
  static constexpr int parts_n = n / tf32_staged_filters, parts = rows64 * parts_n;
  static constexpr int sums = tf32_staged_filters / 2;  // of a part and thread: eight filters of two pixels
  static constexpr int buffers = Block::slots;
  /// Parts that a residual is loaded ahead, into all buffers but the last one stored; the next tile's where this one
  /// has no more. From memory (wgmma_finish.cuh).
  static constexpr int ahead = buffers - 1 < parts ? buffers - 1 : parts;

 public:
  /// Call after wait_for_previous().
  __device__ Tf32Finisher(const Call& g, const Block& block, int warp)
      : g_(g),
        staging_(block.staging(warp)),
        barriers_(block.residuals(warp)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        clamp_(g.activation.clamp()) {
    if (lane_ == 0) {
      prefetch_map(g.results);
      if (g.adds_residual != 0) order_copies_after_stores();
    }
    __syncwarp();
  }

  /// Begins a tile at `first`, followed by `next` if that exists. First residuals are loaded during the main loop.
  __device__ void begin(const Place& first, int first_k, const Place& next, int next_k) {
    const bool under_way = first_k_ >= 0;
    first_ = first;
    first_k_ = first_k;
    next_ = next;
    next_k_ = next_k;
    if (g_.adds_residual == 0 || under_way) return;
    if (lane_ == 0)
      for (int part = 0; part < ahead; ++part) load_residual(part);
    __syncwarp();
  }

  /// Call when all accumulators are final.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    // Not unrolled, to keep the code small.
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      if (exists(part)) finish_part(part, d);
      if (lane_ == 0) {
        commit_stores();
        if (g_.adds_residual != 0) load_residual(part + ahead);
      }
      __syncwarp();
    }
    turn_ += parts;
  }

  /// After the last tile: waits until shared memory may be freed.
  __device__ void end() const {
    if (lane_ == 0) wait_for_stores();
    __syncwarp();
  }

 private:
  __device__ Place place(int part) const { return first_.behind(g_, part / parts_n); }
  __device__ int filter(int part) const { return first_k_ + part % parts_n * tf32_staged_filters; }
  __device__ bool exists(int part) const {
    return part < parts && filter(part) < first_.filters_end(g_) && place(part).exists(g_);
  }
  __device__ int buffer(int part) const { return static_cast<int>((turn_ + static_cast<unsigned>(part)) % buffers); }

  /// First lane, once the part `ahead` of it, or an earlier one of another tile, was committed last.
  __device__ void load_residual(int part) const {
    const Place from = part < parts ? place(part) : next_.behind(g_, (part - parts) / parts_n);
    const int k = part < parts ? filter(part) : next_k_ + (part - parts) % parts_n * tf32_staged_filters;
    if (k >= from.filters_end(g_) || !from.exists(g_)) return;
    wait_until_read<1>();  // until TMA has read the buffer's previous results
    const int at = buffer(part);
    arrive_expecting(barriers_ + at, tf32_staged_bytes);
    from.load(g_, staging_ + at * tf32_staged_bytes, barriers_ + at, k);
  }

  /// Biases of the thread's eight filters, four and four.
  __device__ void load_bias(int part, float4 (&bias)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = filter(part) + lane_ % 4 * 8 + half * 4;
      bias[half] = {};
      if (g_.bias == nullptr) continue;
      if (g_.biases != g_.k)
        bias[half] = four_of(g_.bias, k, g_.biases);
      else if (k < g_.k)
        bias[half] = *reinterpret_cast<const float4*>(g_.bias + k);
    }
  }

  __device__ void finish_part(int part, const float (&d)[rows64][n / 2]) {
    const int at = buffer(part);
    unsigned char* const staged = staging_ + at * tf32_staged_bytes;
    // Four i: filters 8t + 4 * (i % 2) on, of row lane / 4, then of the row 8 below.
    const auto four_at = [&](int i) {
      return reinterpret_cast<float4*>(staged + tf32_staged_offset(lane_ / 4 + i / 2 * 8, lane_ % 4 * 2 + i % 2));
    };

    float4 bias[2];
    load_bias(part, bias);
    float4 v[sums / 4];
#pragma unroll
    for (int known = 0; known < parts; ++known)  // register indices must be constants
      if (part == known) {
#pragma unroll
        for (int i = 0; i < sums / 4; ++i) {
          // Filters 2j and 2j + 1 of the eight are in column group j.
          const int first = known % parts_n * sums + i % 2 * 8 + i / 2 * 2;
          const float(&of)[n / 2] = d[known / parts_n];
          v[i] = float4{of[first], of[first + 1], of[first + 4], of[first + 5]} + bias[i % 2];
        }
      }

    if (g_.adds_residual != 0) {
      wait_for_phase(barriers_ + at, phases_ >> at & 1);
      phases_ ^= 1U << at;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < sums / 4; ++i) v[i] = v[i] + *four_at(i);
    } else if (lane_ == 0) {
      wait_until_read<buffers - 1>();
    }
    __syncwarp();

    if (g_.activation.is_clamp()) {
#pragma unroll
      for (int i = 0; i < sums / 4; ++i) *four_at(i) = {clamp_(v[i].x), clamp_(v[i].y), clamp_(v[i].z), clamp_(v[i].w)};
    } else {
#pragma unroll
      for (int i = 0; i < sums / 4; ++i) *four_at(i) = v[i];
        // Other activations are long code: not unrolled. A thread reads what it wrote itself.
#pragma unroll 1
      for (int i = 0; i < sums / 4; ++i) *four_at(i) = g_.activation(*four_at(i));
    }
    order_copies_after_shared_stores();
    __syncwarp();
    if (lane_ == 0) place(part).store(g_, staged, filter(part));
  }

  const Call& g_;
  unsigned char* staging_;
  std::uint64_t* barriers_;  // one a buffer
  int lane_;
  Clamp clamp_;
  Place first_{}, next_{};
  int first_k_ = -1, next_k_ = 0;
  unsigned turn_ = 0;    // parts before this tile
  unsigned phases_ = 0;  // parities of barriers_, a bit each
};

#endif

}  // namespace lenslet::cuda
