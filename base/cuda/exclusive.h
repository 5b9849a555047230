#pragma once
// What one thread of the process does at a time.

#include <mutex>

namespace lenslet::cuda {

/// Held while a library's work is captured into a graph, and while a library handle is made or ends: captures are said
/// to be threads' own (cudaStreamCaptureModeThreadLocal), yet with six threads making and ending Runners at once one in
/// a hundred was invalidated (cublasDestroy waits for the whole device), and some ended in the driver. Nothing else
/// needs it: our own kernels are put into graphs node by node.
inline std::recursive_mutex& exclusive() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace lenslet::cuda
