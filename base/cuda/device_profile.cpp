// A CUDA device's performance figures, from its attributes.

#include "base/device_profile.h"

#include <cuda_runtime.h>

#include <map>
#include <mutex>

#include "base/cuda/check.h"
#include "base/cuda/cublas.h"
#include "base/cuda/probe.h"
#include "base/cuda_built.h"

namespace lenslet::cuda {
namespace {

/// Operations per cycle of a multiprocessor, by compute capability (CUDA Programming Guide, "Arithmetic Instructions";
/// NVIDIA's architecture white papers for TF32).
struct Architecture {
  int capability;
  int fp32_lanes;        ///< multiply-adds
  double tf32_per_fp32;  ///< dense TF32 products beside them
};
constexpr Architecture architectures[] = {
    {80, 64, 8},    {86, 128, 1},   {87, 128, 1},   {89, 128, 1},
    {90, 128, 7.5}, {100, 128, 14}, {103, 128, 14}, {120, 128, 1},
};

/// The row of the newest architecture not above `capability`; the first row for older ones.
const Architecture& architecture_of(int capability) {
  const Architecture* row = &architectures[0];
  for (const Architecture& known : architectures)
    if (known.capability <= capability) row = &known;
  return *row;
}

// Fractions of the peak that an H200 reaches: 51 of 66.9 TFLOP/s in a large product, 4.3 of 4.92 TB/s in a large copy.
constexpr double product_share = 0.76, copy_share = 0.875;

DeviceProfile look(int device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  DeviceProfile profile;
  // Measured devices keep their figures; supported features are queried all the same.
  if (reference_gpu().name == properties.name && reference_gpu().units == properties.multiProcessorCount) {
    profile = reference_gpu();
  } else {
    profile.kind = DeviceKind::cuda;
    profile.name = properties.name;
    profile.capability = 10 * properties.major + properties.minor;
    profile.units = properties.multiProcessorCount;
    const Architecture& architecture = architecture_of(profile.capability);
    const double clock_mhz = attribute(cudaDevAttrClockRate) / 1e3;
    profile.fp32_flops_per_us = product_share * 2.0 * architecture.fp32_lanes * profile.units * clock_mhz;
    profile.tf32_flops_per_us = architecture.tf32_per_fp32 * profile.fp32_flops_per_us;
    profile.half_flops_per_us = 2 * profile.tf32_flops_per_us;
    // Two transfers per cycle of `width` bits each.
    const double memory_mhz = attribute(cudaDevAttrMemoryClockRate) / 1e3;
    profile.bytes_per_us = copy_share * 2 * memory_mhz * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
    profile.launch_us = reference_gpu().launch_us;
    profile.l2_bytes = static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize));
  }
  profile.shared_bytes_per_block = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  profile.shared_bytes_per_unit = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  profile.quick_build = cuda_quick_build;
  // PTX for an older architecture has no clusters.
  profile.clusters = kernels_wait_for_previous();
  for (std::size_t blocks = 2; profile.clusters && blocks < profile.cluster_units.size(); ++blocks)
    profile.cluster_units[blocks] = multiprocessors_for_clusters(static_cast<int>(blocks));
  return profile;
}

}  // namespace

DeviceProfile device_profile(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceProfile> seen;
  const std::lock_guard lock(mutex);
  auto found = seen.find(device);
  if (found == seen.end()) found = seen.emplace(device, look(device)).first;
  DeviceProfile profile = found->second;
  profile.cublas_reason = cublas_unavailable_reason(device);
  return profile;
}

}  // namespace lenslet::cuda
