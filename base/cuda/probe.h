#pragma once

#include <cuda_runtime.h>

#include "base/cuda/kernel_code.h"

namespace lenslet::cuda {

/// Loads a kernel of this build on the current device and reports its code; cudaErrorNoKernelImageForDevice without
/// usable machine code or PTX. Creates the device's context. Fast: the kernel is alone in its module, so a driver
/// compiles nothing else.
cudaError_t load_probe_kernel(KernelCode& code) noexcept;

/// True if kernels on the current device were compiled for sm_90 or newer, so that wait_for_previous() waits. False for
/// PTX of an older architecture, even on a newer device. Throws Error(device).
bool kernels_wait_for_previous();

/// The most multiprocessors that clusters of `blocks` occupy on the current device with one block each. A cluster stays
/// within one GPC, whose leftover multiprocessors stay idle. 0 where such clusters are not supported. Throws
/// Error(device).
int multiprocessors_for_clusters(int blocks);

}  // namespace lenslet::cuda
