#pragma once
// wgmma_gemm with cluster split-K; wgmma_gemm binds it where its plan has splits.

#include <memory>

#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// plan.split_k > 0. Uses wgmma_gemm's packed filters.
std::unique_ptr<const BoundKernel> bind_wgmma_split_k(const ConvProblem& problem, const WgmmaGemmPlan& plan);

}  // namespace lenslet::cuda
