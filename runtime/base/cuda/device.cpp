// CUDA devices and what this build can do with them.

#include "runtime/base/cuda/device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>

#include "runtime/base/cuda/check.h"
#include "runtime/base/cuda/probe.h"

namespace lenslet::cuda {
namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

std::string words(cudaError_t status) {
  static_cast<void>(cudaGetLastError());
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

DeviceInfo describe(int index) {
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
  status = cudaSetDevice(index);
  if (status == cudaSuccess) status = load_probe_kernel();
  info.usable = status == cudaSuccess;
  if (status == cudaErrorNoKernelImageForDevice)
    info.reason = fmt::format("built for {}, not for {}", LENSLET_CUDA_ARCHITECTURES, info.architecture);
  else if (status != cudaSuccess)
    info.reason = words(status);
  return info;
}

}  // namespace

void query(DeviceReport& report) {
  CudaInfo& cuda = report.cuda;
  cuda.built = true;
  cuda.runtime = version(CUDART_VERSION);
  cuda.compiled = LENSLET_CUDA_ARCHITECTURES;
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) cuda.driver = version(driver);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cuda.reason = cuda.driver.empty() ? "no NVIDIA driver on this machine" : words(status);
    static_cast<void>(cudaGetLastError());
    return;
  }
  int current = 0;
  const bool has_current = cudaGetDevice(&current) == cudaSuccess;
  bool any_usable = false;
  for (int index = 0; index < count; ++index) {
    report.devices.push_back(describe(index));
    any_usable |= report.devices.back().usable;
  }
  if (has_current && count > 0) CUDA_LOG(cudaSetDevice(current));
  if (count == 0)
    cuda.reason = "the driver shows no device";
  else if (!any_usable)
    cuda.reason = report.devices.back().reason;
}

}  // namespace lenslet::cuda
