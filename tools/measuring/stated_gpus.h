#pragma once
// Profiles of GPUs that need not be there, to ask for plans: an H200 as reference_gpu(), the others as device_profile()
// makes them of their attributes, all with cuBLAS.

#include <string>
#include <vector>

#include "base/device_profile.h"
#include "lenslet/error.h"

namespace lenslet::tool {

inline std::vector<std::string> stated_gpu_names() { return {"h200", "h100", "a100"}; }

/// Of one of these names. Error(invalid_argument) for another.
inline DeviceProfile stated_gpu(const std::string& name) {
  DeviceProfile device = reference_gpu();
  device.cublas_reason.clear();
  if (name == "h100") {
    device.name = "NVIDIA H100 80GB HBM3";
    device.fp32_flops_per_us = 50.86e6;
    device.tf32_flops_per_us = 381.4e6;
    device.half_flops_per_us = 762.8e6;
    device.bytes_per_us = 2.933e6;
    device.cluster_units = {0, 0, 132, 117, 120, 110, 102, 105, 120};
  } else if (name == "a100") {
    device.name = "NVIDIA A100-SXM4-80GB";
    device.capability = 80;
    device.units = 108;
    device.fp32_flops_per_us = 14.81e6;
    device.tf32_flops_per_us = 118.5e6;
    device.half_flops_per_us = 237.0e6;
    device.bytes_per_us = 1.784e6;
    device.l2_bytes = 40 << 20;
    device.shared_bytes_per_block = 163 << 10;
    device.shared_bytes_per_unit = 164 << 10;
    device.clusters = false;
  } else if (name != "h200") {
    throw Error(ErrorKind::invalid_argument, "no profile is stated of a GPU called " + name);
  }
  return device;
}

}  // namespace lenslet::tool
