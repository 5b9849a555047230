// Replaces the kernels of gemm_cute in builds without CUTLASS or CUDA.

#include "lenslet/error.h"
#include "ops/gemm/cute/gemm_cute.h"

namespace lenslet::cuda {

bool cute_built() { return false; }

void gemm_cute(const Context&, const CuteCall&, const CutePlan&) {
  throw Error(ErrorKind::internal, "gemm_cute is not in this build");
}

}  // namespace lenslet::cuda
