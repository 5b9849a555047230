#include "base/cuda/probe.h"

#include "base/cuda/check.h"

namespace lenslet::cuda {
namespace {

// Never launched: asking the runtime for its attributes is enough to load it.
__global__ void probe() {}

}  // namespace

cudaError_t load_probe_kernel() noexcept {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe);
}

bool kernels_wait_for_previous() {
  cudaFuncAttributes attributes{};
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, probe));
  // __CUDA_ARCH__ was ptxVersion * 10, whatever machine code became of it.
  return attributes.ptxVersion >= 90 && attributes.binaryVersion >= 90;
}

}  // namespace lenslet::cuda
