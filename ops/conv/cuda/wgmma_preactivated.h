#pragma once
// wgmma_preactivated: PreactivatedConv in 16 bits by wgmma_gemm's blocks. Plain C++.

#include <cstddef>
#include <memory>
#include <vector>

#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/preactivated.h"

namespace lenslet::cuda {

/// The configurations with a kernel: a consumer has 64 pixels, and k-blocks are 64 channels.
std::vector<WgmmaGemmPlan> preactivated_tilings(const ConvProblem& problem);

/// The blob: filters as WgmmaFilters, then for channels 2i and 2i + 1 both scales and both shifts in float32, 0 up to
/// whole k-blocks. Their offset in bytes.
std::size_t preactivated_factors_at(const ConvProblem& problem, const WgmmaGemmPlan& plan);

std::unique_ptr<const BoundKernel> bind_wgmma_preactivated(const PreactivatedProblem& problem,
                                                           const WgmmaGemmPlan& plan);

}  // namespace lenslet::cuda
