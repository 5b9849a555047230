#pragma once
// The wgmma_tf32 kernel: wgmma_gemm's (wgmma_gemm.cuh) on float32 windows, which TMA rounds to TF32 on the way into
// shared memory, and on filters rounded when packed. A k-block has as many bytes and takes the tensor cores as long.
// The epilogue stores float32 through boxes in shared memory by TMA, which loads residuals the same way. Filters are
// permuted so that a thread has eight adjacent ones of a pixel (tf32_filter_at).
//
// Rounding windows in place would add 32 KiB of shared memory traffic to a k-block of 128x128, which has 80 KiB in
// about 640 cycles of at most 128 bytes.

#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_tf32_finish.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"

namespace lenslet::cuda {

/// Kernel arguments. windows: the map rounds; filters: [K in whole boxes][R*S][C]; stages, filters_last: not heeded.
using WgmmaTf32 = WgmmaGemm;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <>
struct WgmmaElement<float> {
  template <typename Block>
  using Epilogue = Tf32Finisher<Block, WgmmaGemm>;
  static constexpr int box_bytes(int) { return tf32_staged_bytes; }
  static constexpr bool filters_may_last = false;
};
#endif

}  // namespace lenslet::cuda
