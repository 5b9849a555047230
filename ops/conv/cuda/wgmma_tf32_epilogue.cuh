#pragma once
// Epilogue of TF32 kernels with float32 results: wgmma_epilogue.cuh for floats.

#include <cuda_runtime.h>

#include "base/cuda/vector.cuh"
#include "ops/conv/cuda/box_epilogue.cuh"
#include "ops/conv/cuda/some_of.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// A consumer warp's epilogue, as wgmma_gemm's (wgmma_epilogue.cuh) for floats. Each box takes the next of the warp's
/// slots and is one bulk group of the first lane, even where it lies outside of y.
template <typename Block, typename Call, typename Place = PixelPlace>
class Tf32Epilogue : public BoxEpilogue<Block, Call, Place, tf32_staged_filters, tf32_staged_bytes> {
  using Base = BoxEpilogue<Block, Call, Place, tf32_staged_filters, tf32_staged_bytes>;
  using Base::ahead, Base::boxes, Base::boxes_n, Base::n, Base::rows64, Base::slots;
  using Base::exists, Base::filter, Base::place;
  using Base::g_, Base::lane_, Base::staging_;
  static constexpr int acc = tf32_staged_filters / 2;  // of a box and thread: eight filters of two pixels

 public:
  /// Call after wait_for_previous().
  __device__ Tf32Epilogue(const Call& g, const Block& block, int warp)
      : Base(g, block, warp), clamp_(g.activation.clamp()) {
    this->begin_copies();
  }

  /// Begins a tile at `first`, followed by `next` if that exists. First residuals are loaded during the main loop.
  __device__ void begin(const Place& first, int first_k, const Place& next, int next_k) {
    Base::begin(first, first_k, next, next_k, [this](int box) { return slot(box); });
  }

  /// Call when all accumulators are final.
  __device__ void finish(const float (&d)[rows64][n / 2]) {
    // Not unrolled, to keep the code small.
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) {
      if (exists(box)) finish_box(box, d);
      if (lane_ == 0) {
        tma_commit();
        if (g_.adds_residual != 0) this->load_residual(box + ahead, [this](int at) { return slot(at); });
      }
      __syncwarp();
    }
    turn_ += boxes;
  }

 private:
  __device__ int slot(int box) const { return static_cast<int>((turn_ + static_cast<unsigned>(box)) % slots); }

  /// Biases of the thread's eight filters, four and four.
  __device__ void load_bias(int box, float4 (&bias)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = filter(box) + lane_ % 4 * 8 + half * 4;
      bias[half] = {};
      if (g_.bias == nullptr) continue;
      if (g_.biases != g_.k)
        bias[half] = four_of(g_.bias, k, g_.biases);
      else if (k < g_.k)
        bias[half] = *reinterpret_cast<const float4*>(g_.bias + k);
    }
  }

  __device__ void finish_box(int box, const float (&d)[rows64][n / 2]) {
    const int at = slot(box);
    unsigned char* const staged = staging_ + at * tf32_staged_bytes;
    // Four i: filters 8t + 4 * (i % 2) on, of row lane / 4, then of the row 8 below.
    const auto four_at = [&](int i) {
      return reinterpret_cast<float4*>(staged + tf32_staged_offset(lane_ / 4 + i / 2 * 8, lane_ % 4 * 2 + i % 2));
    };

    float4 bias[2];
    load_bias(box, bias);
    float4 v[acc / 4];
#pragma unroll
    for (int known = 0; known < boxes; ++known)  // register indices must be constants
      if (box == known) {
#pragma unroll
        for (int i = 0; i < acc / 4; ++i) {
          // Filters 2j and 2j + 1 of the eight are in column group j.
          const int first = known % boxes_n * acc + i % 2 * 8 + i / 2 * 2;
          const float(&of)[n / 2] = d[known / boxes_n];
          v[i] = float4{of[first], of[first + 1], of[first + 4], of[first + 5]} + bias[i % 2];
        }
      }

    if (g_.adds_residual != 0) {
      this->wait_for_residual(at, phases_);
#pragma unroll
      for (int i = 0; i < acc / 4; ++i) v[i] = v[i] + *four_at(i);
    } else if (lane_ == 0) {
      tma_wait_read<slots - 1>();
    }
    __syncwarp();

    if (g_.activation.is_clamp()) {
#pragma unroll
      for (int i = 0; i < acc / 4; ++i) *four_at(i) = {clamp_(v[i].x), clamp_(v[i].y), clamp_(v[i].z), clamp_(v[i].w)};
    } else {
#pragma unroll
      for (int i = 0; i < acc / 4; ++i) *four_at(i) = v[i];
        // Other activations are long code: eight values at a time. A thread reads what it wrote itself. Approximate
        // functions err by 2^-15.5 at most, products of rounded operands by 2^-11.
#pragma unroll 1
      for (int i = 0; i < acc / 4; i += 2) {
        const float4 low = *four_at(i), high = *four_at(i + 1);
        float eight[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        g_.activation.apply_for_halves(eight);
        *four_at(i) = {eight[0], eight[1], eight[2], eight[3]};
        *four_at(i + 1) = {eight[4], eight[5], eight[6], eight[7]};
      }
    }
    fence_proxy_async_shared();
    __syncwarp();
    if (lane_ == 0) place(box).store(g_, staged, filter(box));
  }

  Clamp clamp_;
  unsigned turn_ = 0;    // boxes before this tile
  unsigned phases_ = 0;  // of residuals
};

#endif

}  // namespace lenslet::cuda
