#pragma once
// A process-wide lock on CUDA library handles and captures.

#include <mutex>

namespace lenslet::cuda {

/// Held during the capture of a library's work, and while a library handle is created or destroyed. Captures should be
/// thread-local (cudaStreamCaptureModeThreadLocal), yet cublasDestroy waits for the whole device: with six threads
/// creating and destroying Runners, one capture in a hundred was invalidated, and some crashed in the driver. Our own
/// kernels need no lock: they are added to graphs node by node.
inline std::recursive_mutex& exclusive() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace lenslet::cuda
