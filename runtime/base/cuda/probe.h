#pragma once

#include <cuda_runtime.h>

namespace lenslet::cuda {

/// Loads a kernel of this build on the current device: cudaErrorNoKernelImageForDevice when there is neither machine
/// code for it nor PTX that its driver can compile. Creates the device's context.
cudaError_t load_probe_kernel() noexcept;

}  // namespace lenslet::cuda
