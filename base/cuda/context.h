#pragma once
// The device state that a launcher needs.

#include <cuda_runtime.h>

namespace lenslet::cuda {

class Cublas;         // base/cuda/cublas.h
class GraphRecorder;  // base/cuda/graph.h

/// The stream and device of one Runner or test. The device is current on the calling thread. Owns nothing.
struct Context {
  cudaStream_t stream = nullptr;
  int device = 0;
  int multiprocessors = 1;
  int compute_capability = 80;        ///< 10 * major + minor
  bool overlap_launches = false;      ///< launch() may start a kernel while the one before it drains (sm_90 and newer)
  GraphRecorder* recorder = nullptr;  ///< if set, launch() adds to this graph instead of the stream
  const Cublas* cublas = nullptr;     ///< bound to `stream`, with workspace; null: no step needs it
  /// Set to 1 by a kernel that finds invalid inputs (BoundKernel::fault), which then continues safely. Pinned host
  /// memory, which the host checks after the run. Null for all other kernels.
  int* fault = nullptr;
};

}  // namespace lenslet::cuda
