#pragma once
// wgmma_gemm with a tile's steps cut over the blocks of a cluster: what wgmma_gemm binds where its plan has slices.

#include <memory>

#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// plan.slices > 0. The filters are wgmma_gemm's.
std::unique_ptr<const BoundKernel> bind_wgmma_slices(const ConvProblem& problem, const WgmmaGemmPlan& plan);

}  // namespace lenslet::cuda
