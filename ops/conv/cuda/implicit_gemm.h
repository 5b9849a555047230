#pragma once
// Plain C++.

#include "ops/conv/cuda/implicit_gemm_plan.h"

namespace lenslet::cuda {

/// What the algorithms implicit_gemm (NHWC) and implicit_gemm_nchw run, with a cut of the caller's choice: for tests
/// and tuning. run.workspace has plan.workspace_bytes; run.filter is what the algorithm prepares, the same for all
/// cuts. Error(internal) when the plan's tile is not in gemm_tiles_for() of the problem's access.
void run_implicit_gemm(const ConvRun& run, Format layout, const ImplicitGemmPlan& plan);

}  // namespace lenslet::cuda
