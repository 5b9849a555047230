// CUDA devices and what this build can do with them.

#include "base/cuda/device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>

#include "base/cuda/check.h"
#include "base/cuda/probe.h"
#include "base/cuda_built.h"

namespace lenslet::cuda {
namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

std::string words(cudaError_t status) {
  static_cast<void>(cudaGetLastError());
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

int query_driver(CudaInfo& cuda) {
  cuda.built = true;
  cuda.runtime = version(CUDART_VERSION);
  cuda.compiled = cuda_architectures;
  if (!works_in_this_process()) {
    cuda.reason = no_cuda_after_fork;
    return 0;
  }
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) cuda.driver = version(driver);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    const std::string why = words(status);
    cuda.reason = cuda.driver.empty() ? "no NVIDIA driver on this machine" : why;
    return 0;
  }
  if (count == 0) cuda.reason = "the driver shows no device";
  return count;
}

DeviceInfo query_device(int index) {
  DeviceInfo info;
  info.id = fmt::format("cuda:{}", index);
  cudaDeviceProp properties{};
  cudaError_t status = cudaGetDeviceProperties(&properties, index);
  if (status != cudaSuccess) {
    info.reason = words(status);
    return info;
  }
  info.name = properties.name;
  info.architecture = fmt::format("sm_{}{}", properties.major, properties.minor);
  info.cores = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  int current = 0;
  const bool has_current = cudaGetDevice(&current) == cudaSuccess;
  status = cudaSetDevice(index);
  KernelCode code;
  if (status == cudaSuccess) status = load_probe_kernel(code);
  info.usable = status == cudaSuccess;
  if (info.usable) {
    info.note = compile_note(code, cuda_architectures);
    if (cuda_quick_build && info.note.empty())
      info.note = "this build's kernels are not optimised (LENSLET_CUDA_QUICK) and may take 100 times as long";
  } else {
    info.reason = words(status);
    if (status == cudaErrorNoKernelImageForDevice)
      info.reason = fmt::format("built for {}, not for {}", cuda_architectures, info.architecture);
  }
  if (has_current && current != index) CUDA_LOG(cudaSetDevice(current));
  return info;
}

}  // namespace lenslet::cuda
