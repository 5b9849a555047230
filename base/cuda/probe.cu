#include "base/cuda/probe.h"

#include <cstddef>

#include "base/cuda/check.h"

namespace lenslet::cuda {
namespace {

// Never launched: asking the runtime for its attributes is enough to load it.
__global__ void probe() {}

/// Uses all shared memory, so that each block has a multiprocessor to itself.
__global__ void lone_probe() {
  extern __shared__ unsigned char all[];
  all[threadIdx.x] = 0;
}

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

int multiprocessors_for_clusters(int blocks) {
  int device = 0, most = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  CUDA_CHECK(cudaFuncSetAttribute(lone_probe, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(blocks));
  launch.blockDim = dim3(32);
  launch.dynamicSmemBytes = static_cast<std::size_t>(most);
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  int clusters = 0;
  CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, lone_probe, &launch));
  return clusters * blocks;
}

}  // namespace lenslet::cuda
