#include "ops/core/op.h"

#include <fmt/format.h>

namespace lenslet {

void Op::run_cuda(const CudaRun&) const {
  throw Error(ErrorKind::internal, fmt::format("{} has no CUDA kernel and should have been refused", type()));
}

}  // namespace lenslet
