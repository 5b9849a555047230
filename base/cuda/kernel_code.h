#pragma once
// What a device runs of this build: machine code, or PTX that the driver compiles. Plain C++, testable without a
// device.

#include <string>
#include <string_view>

namespace lenslet::cuda {

/// cudaFuncAttributes of one kernel on one device; capabilities as 10 * major + minor.
struct KernelCode {
  int ptx = 0;     ///< that the source was compiled for: __CUDA_ARCH__ / 10
  int binary = 0;  ///< of the machine code; the device's own where its driver made that
};

/// One line: why the driver compiles the kernels of a build for `architectures` (CMAKE_CUDA_ARCHITECTURES, separated by
/// spaces) and how long it takes. Empty when it loads machine code. Not detected: CUDA_FORCE_PTX_JIT, which prefers PTX
/// to machine code of the same capability.
std::string compile_note(const KernelCode& code, std::string_view architectures);

}  // namespace lenslet::cuda
