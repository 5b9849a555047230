#pragma once
// wgmma_patch with a tile's channels cut over the blocks of a cluster: what wgmma_patch binds where its plan has
// slices.

#include <memory>

#include "ops/conv/cuda/wgmma_patch_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// plan.slices > 0. The filters are wgmma_patch's.
std::unique_ptr<const BoundKernel> bind_wgmma_patch_slices(const ConvProblem& problem, const WgmmaPatchPlan& plan);

}  // namespace lenslet::cuda
