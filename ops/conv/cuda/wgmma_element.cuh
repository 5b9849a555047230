#pragma once
// Element traits of the persistent wgmma kernels (wgmma_gemm.cuh, wgmma_halo.cuh): all that their code has of the type
// T of the operands, beside sizeof(T), wgmma<T>() and the tensor maps. A k-block is 128 bytes, whatever the type. The
// results' type is the epilogue's, and may be another.

#include "ops/conv/cuda/wgmma_epilogue.cuh"
#include "ops/conv/cuda/wgmma_tf32_epilogue.cuh"

namespace lenslet::cuda {

/// Float16 and BFloat16.
template <typename T>
struct WgmmaElement {
  static_assert(is_half<T>, "WgmmaElement has no specialisation for T");
  using Accumulator = float;
  /// Of the results' boxes, with tiles of n filters.
  LENSLET_HOST_DEVICE static constexpr int box_filters(int n) { return staged_filters(n); }
  LENSLET_HOST_DEVICE static constexpr int box_bytes(int n) { return staged_box_bytes(n); }
  /// Whether wgmma_gemm heeds WgmmaGemm::stages and filters_last, which its launch then sets: with 0 stages it hangs.
  /// Else all stages are in use.
  static constexpr bool filters_may_last = true;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  template <typename Block, typename Call, typename Place = PixelPlace>
  using Epilogue = EpilogueStore<T, Block, Call, Place>;
#endif
};

/// TF32: TMA rounds windows on the way into shared memory, filters are rounded when packed. Rounding in place would add
/// 32 KiB of shared memory traffic to a k-block of 128x128, which has 80 KiB in about 640 cycles of at most 128 bytes.
/// Results are float32; filters are permuted so that a thread has eight adjacent ones of a pixel (tf32_filter_at).
template <>
struct WgmmaElement<float> {
  using Accumulator = float;
  LENSLET_HOST_DEVICE static constexpr int box_filters(int) { return tf32_staged_filters; }
  LENSLET_HOST_DEVICE static constexpr int box_bytes(int) { return tf32_staged_bytes; }
  static constexpr bool filters_may_last = false;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  template <typename Block, typename Call, typename Place = PixelPlace>
  using Epilogue = Tf32Epilogue<Block, Call, Place>;
#endif
};

}  // namespace lenslet::cuda
