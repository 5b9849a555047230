#pragma once
// wgmma_tf32 with a tile's steps cut over the blocks of a cluster: what wgmma_tf32 binds where its plan has slices.

#include <memory>

#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// plan.slices > 0. The filters are wgmma_tf32's.
std::unique_ptr<const BoundKernel> bind_wgmma_tf32_slices(const ConvProblem& problem, const WgmmaTf32Plan& plan);

}  // namespace lenslet::cuda
