#pragma once
// wgmma_patch with cluster split-K over the groups of channels; wgmma_patch binds it where its plan has splits.

#include <memory>

#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_patch_slices_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// Packed filters of both kernels of wgmma_patch.
inline WgmmaFilters patch_filters(const ConvProblem& problem, std::int64_t together) {
  return in_whole_tiles(problem, together, problem.storage == DType::f32 ? tf32_staged_filters : 1);
}

std::unique_ptr<const BoundKernel> bind_patch_slices(const ConvProblem& problem, const PatchSlicesPlan& plan);

}  // namespace lenslet::cuda
