#pragma once

#include <cuda_runtime.h>

#include "base/cuda/kernel_code.h"

namespace lenslet::cuda {

/// Loads a kernel of this build on the current device, and says what code that is: cudaErrorNoKernelImageForDevice when
/// there is neither machine code for it nor PTX that its driver can compile. Creates the device's context. Quick: the
/// kernel is alone in its module, and a driver compiles no other.
cudaError_t load_probe_kernel(KernelCode& code) noexcept;

/// Were the kernels that run on the current device compiled for sm_90 or newer, so that wait_for_previous() waits? Not
/// those which a driver compiles for such a device from PTX of an older architecture. Throws Error(device).
bool kernels_wait_for_previous();

/// How many multiprocessors clusters of `blocks` fill at most on the current device when every block takes one to
/// itself: a cluster stays within one of the chip's groups of multiprocessors, and what a group has left over stays
/// idle. 0 where there are no such clusters. Throws Error(device).
int multiprocessors_for_clusters(int blocks);

}  // namespace lenslet::cuda
