#pragma once
// Devices with wgmma, the warpgroup matrix multiply.

#include <string_view>

#include "base/device_profile.h"

#ifndef LENSLET_CUDA_ARCHITECTURES
#define LENSLET_CUDA_ARCHITECTURES "90a"  // a build without CUDA, which plans all the same
#endif

namespace lenslet::cuda {

/// True if the device is sm_90a and code for it was compiled. wgmma exists on sm_90a alone; there is no PTX of it for
/// other architectures.
inline bool has_wgmma(const DeviceProfile& device) {
  return device.capability == 90 && std::string_view(LENSLET_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
}

/// The refusal of wgmma kernels on other devices.
inline constexpr const char* wgmma_refusal = "it needs the tensor cores of compute capability 9.0, and code for them";

}  // namespace lenslet::cuda
