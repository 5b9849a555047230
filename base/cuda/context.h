#pragma once
// What a launcher needs to know of where it runs.

#include <cuda_runtime.h>

namespace lenslet::cuda {

class Cublas;  // base/cuda/cublas.h

/// Arithmetic of matrix products that cuBLAS does. fp32 is IEEE single precision; tf32 only when asked for.
enum class Precision { fp32, tf32 };

/// One Runner's (or one test's) place on a device. The device is current on the calling thread. Owns nothing.
struct Context {
  cudaStream_t stream = nullptr;
  int device = 0;
  int multiprocessors = 1;
  int compute_capability = 80;    ///< 10 * major + minor
  bool overlap_launches = false;  ///< launch() may start a kernel while the one before it drains (sm_90 and newer)
  bool clusters = false;          ///< launch_clusters() may make clusters (sm_90 and newer)
  Precision precision = Precision::fp32;
  const Cublas* cublas = nullptr;  ///< bound to `stream`, workspace given; null: cuBLAS could not be loaded
};

}  // namespace lenslet::cuda
