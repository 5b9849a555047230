#include "base/cuda/probe.h"

#include "base/cuda/check.h"

namespace lenslet::cuda {
namespace {

// Never launched: asking the runtime for its attributes is enough to load it.
__global__ void probe() {}

}  // namespace

cudaError_t load_probe_kernel(KernelCode& code) noexcept {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  code = {.ptx = attributes.ptxVersion, .binary = attributes.binaryVersion};
  return status;
}

bool kernels_wait_for_previous() {
  KernelCode code;
  CUDA_CHECK(load_probe_kernel(code));
  return code.ptx >= 90 && code.binary >= 90;
}

}  // namespace lenslet::cuda
