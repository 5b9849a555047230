#pragma once
// Which devices multiply by warpgroups.

#include <string_view>

#include "base/device_profile.h"

#ifndef LENSLET_CUDA_ARCHITECTURES
#define LENSLET_CUDA_ARCHITECTURES "90a"  // a build without CUDA, which plans all the same
#endif

namespace lenslet::cuda {

/// wgmma is of sm_90a alone, which newer architectures do not run and of which there is no PTX for others: is this such
/// a device, and was code for it compiled?
inline bool has_wgmma(const DeviceProfile& device) {
  return device.capability == 90 && std::string_view(LENSLET_CUDA_ARCHITECTURES).find("90a") != std::string_view::npos;
}

/// Why a kernel of clusters that multiply so refuses a device.
inline constexpr const char* wgmma_refusal = "it needs the tensor cores of compute capability 9.0, and code for them";

}  // namespace lenslet::cuda
