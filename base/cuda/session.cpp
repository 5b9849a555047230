#include "base/cuda/session.h"

#include "base/cuda/probe.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

CurrentDevice::CurrentDevice(int device) {
  if (!works_in_this_process()) throw Error(ErrorKind::device, no_cuda_after_fork);
  CUDA_CHECK(cudaGetDevice(&previous_));
  CUDA_CHECK(cudaSetDevice(device));
}

CurrentDevice::~CurrentDevice() { CUDA_LOG(cudaSetDevice(previous_)); }

Session::Session(int device, bool with_cublas) {
  context_.stream = stream_.get();
  context_.device = device;
  context_.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
  context_.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor, device) + attribute(cudaDevAttrComputeCapabilityMinor, device);
  // PTX for an older architecture has neither griddepcontrol, so that its kernels would not wait, nor clusters.
  context_.overlap_launches = kernels_wait_for_previous();
  if (with_cublas) cublas_ = std::make_unique<Cublas>(stream_, cublas_workspace_bytes(context_.compute_capability));
  context_.cublas = cublas_.get();
}

}  // namespace lenslet::cuda
