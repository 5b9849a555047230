// Stands in for device.cpp in builds without CUDA.

#include "runtime/base/cuda/device.h"

namespace lenslet::cuda {

void query(DeviceReport& report) {
  report.cuda.built = false;
  report.cuda.reason = "this build has no CUDA half (LENSLET_CUDA=OFF, or nvcc was not found)";
}

}  // namespace lenslet::cuda
