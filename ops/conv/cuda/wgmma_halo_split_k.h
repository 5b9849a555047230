#pragma once
// wgmma_halo with cluster split-K over the groups of channels; wgmma_halo binds it where its plan has splits.

#include <memory>

#include "ops/conv/cuda/wgmma_filters.h"
#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/kernel.h"

namespace lenslet::cuda {

/// Packed filters of both kernels of wgmma_halo.
inline WgmmaFilters halo_filters(const ConvProblem& problem, std::int64_t together) {
  return in_whole_tiles(problem, together, problem.storage == DType::f32 ? tf32_staged_filters : 1);
}

std::unique_ptr<const BoundKernel> bind_halo_split_k(const ConvProblem& problem, const HaloSplitKPlan& plan);

}  // namespace lenslet::cuda
