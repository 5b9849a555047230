#pragma once
// wgmma_tf32 with cluster split-K; wgmma_tf32 binds it where its plan has splits.

#include <memory>

#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// plan.split_k > 0. Uses wgmma_tf32's packed filters.
std::unique_ptr<const BoundKernel> bind_wgmma_tf32_split_k(const ConvProblem& problem, const WgmmaTf32Plan& plan);

}  // namespace lenslet::cuda
