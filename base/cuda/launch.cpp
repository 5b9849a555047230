#include "base/cuda/launch.h"

namespace lenslet::cuda {

void queue(const Context& context, KernelLaunch launch) {
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

}  // namespace lenslet::cuda
