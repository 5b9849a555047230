#include "base/cuda/launch.h"

#include <mutex>

namespace lenslet::cuda {

void queue(const Context& context, KernelLaunch launch) {
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) return;  // of an empty tensor: CUDA refuses it
  launch.overlap = context.overlap_launches;
  if (context.recorder != nullptr) {
    context.recorder->add(launch);
    return;
  }
  std::array<cudaLaunchAttribute, 2> attributes{};
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = context.stream;
  config.attrs = attributes.data();
  if (launch.overlap) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cluster.x * launch.cluster.y * launch.cluster.z > 1) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = launch.cluster.x;
    together.val.clusterDim.y = launch.cluster.y;
    together.val.clusterDim.z = launch.cluster.z;
  }
  CUDA_CHECK(cudaLaunchKernelExC(&config, launch.kernel, launch.arguments));
}

void allow_shared_bytes(const void* kernel, std::size_t bytes) {
  if (bytes <= 48 * 1024) return;  // the default limit of every kernel
  static std::mutex mutex;         // query and set are one step
  const std::lock_guard lock(mutex);
  cudaFuncAttributes attributes{};
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  if (static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes) < bytes)
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace lenslet::cuda
