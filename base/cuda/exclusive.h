#pragma once
// What one thread of the process does at a time.

#include <mutex>

namespace lenslet::cuda {

/// Held while a stream is captured, and by everything else that is done once and not in a run: memory taken and given
/// back, uploads, library handles. Captures are said to be threads' own (cudaStreamCaptureModeThreadLocal), yet with
/// six threads making and ending Runners at once one capture in a hundred was invalidated (cublasDestroy waits for the
/// whole device), and some ended in the driver. Launches, copies of a run and waiting need no lock.
inline std::recursive_mutex& exclusive() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace lenslet::cuda
