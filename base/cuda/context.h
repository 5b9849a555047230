#pragma once
// What a launcher needs to know of where it runs.

#include <cuda_runtime.h>

namespace lenslet::cuda {

class Cublas;         // base/cuda/cublas.h
class GraphRecorder;  // base/cuda/graph.h

/// One Runner's (or one test's) place on a device. The device is current on the calling thread. Owns nothing.
struct Context {
  cudaStream_t stream = nullptr;
  int device = 0;
  int multiprocessors = 1;
  int compute_capability = 80;        ///< 10 * major + minor
  bool overlap_launches = false;      ///< launch() may start a kernel while the one before it drains (sm_90 and newer)
  GraphRecorder* recorder = nullptr;  ///< not null: launch() adds to this graph in place of the stream
  const Cublas* cublas = nullptr;     ///< bound to `stream`, workspace given; null: no step asked for it
  /// Where a kernel that finds what its inputs hold wrong (BoundKernel::fault) writes 1 and goes on with anything that
  /// is safe; pinned memory of the host, which looks after the run. Null for all other kernels.
  int* fault = nullptr;
};

}  // namespace lenslet::cuda
