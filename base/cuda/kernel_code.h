#pragma once
// What a device runs of this build: its machine code, or what the driver compiles from its PTX. Plain C++, so that it
// is tested without a device.

#include <string>
#include <string_view>

namespace lenslet::cuda {

/// Of one kernel on one device, as cudaFuncAttributes has it: 10 * major + minor of a compute capability.
struct KernelCode {
  int ptx = 0;     ///< that the source was compiled for: __CUDA_ARCH__ / 10
  int binary = 0;  ///< of the machine code; the device's own where its driver made that
};

/// Why the driver compiles the kernels of a build for `architectures` (CMAKE_CUDA_ARCHITECTURES, by spaces), and how
/// long that takes: one line. Empty: it loads machine code. Not told from that: PTX that CUDA_FORCE_PTX_JIT prefers to
/// machine code of the same capability.
std::string compile_note(const KernelCode& code, std::string_view architectures);

}  // namespace lenslet::cuda
