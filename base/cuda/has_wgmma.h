#pragma once
// Devices with wgmma, the warpgroup matrix multiply.

#include "base/cuda_built.h"
#include "base/device_profile.h"

namespace lenslet::cuda {

/// True if the device is sm_90a and code for it was compiled. wgmma exists on sm_90a alone; there is no PTX of it for
/// other architectures.
inline bool has_wgmma(const DeviceProfile& device) {
  return device.capability == 90 && cuda_architectures.find("90a") != std::string_view::npos;
}

/// The refusal of wgmma kernels on other devices.
inline constexpr const char* wgmma_refusal = "it needs the tensor cores of compute capability 9.0, and code for them";

}  // namespace lenslet::cuda
