// Replaces device.cpp in builds without CUDA.

#include "base/cuda/device.h"

namespace lenslet::cuda {

int query_driver(CudaInfo& cuda) {
  cuda.built = false;
  cuda.reason = "this build has no CUDA half (LENSLET_CUDA=OFF, or nvcc was not found)";
  return 0;
}

DeviceInfo query_device(int) { return {}; }

}  // namespace lenslet::cuda
