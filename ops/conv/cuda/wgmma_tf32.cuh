#pragma once
// The wgmma_tf32 kernel: wgmma_gemm's (wgmma_gemm.cuh) for float32, as WgmmaElement<float> describes. A k-block has as
// many bytes as in 16 bits, and takes the tensor cores as long.

#include "ops/conv/cuda/wgmma_gemm.cuh"
#include "ops/conv/cuda/wgmma_tf32_plan.h"

namespace lenslet::cuda {

/// Kernel arguments. windows: the map rounds; filters: [K in whole boxes][R*S][C]; stages, filters_last: not heeded.
using WgmmaTf32 = WgmmaGemm;

}  // namespace lenslet::cuda
