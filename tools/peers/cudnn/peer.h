#pragma once
// cuDNN's side of the comparison.

#include <cudnn.h>

#include <cstddef>
#include <string>

#include "base/cuda/buffer.h"
#include "base/cuda/stream.h"
#include "lenslet/numerics.h"
#include "ops/conv/problem.h"

namespace lenslet::bench {

using Arithmetic = Numerics::Multiply;

struct PeerTime {
  double conv_us = 0;   ///< the convolution alone
  double fused_us = 0;  ///< with bias and ReLU in cuDNN's fused entry; 0: it took none of the algorithms
  std::string what;     ///< of the faster of both layouts: "NHWC implicit_precomp_gemm"
};

/// Best forward algorithm of cuDNN's exhaustive search (cudnnFindConvolutionForwardAlgorithmEx) over NCHW and NHWC: the
/// three fastest of each are timed again by graph replays, the same way as ours. Not thread-safe.
class Peer {
 public:
  explicit Peer(const cuda::Stream& stream);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();
  /// Zero times when no algorithm takes the problem. Error(device) when cuDNN fails otherwise.
  PeerTime best(const ConvProblem& problem, Arithmetic arithmetic, double seconds);

 private:
  void time_layout(const ConvProblem& problem, Arithmetic arithmetic, cudnnTensorFormat_t format, double seconds,
                   PeerTime& best);
  template <typename Call>
  double replay_us(const ConvProblem& problem, double seconds, const Call& call);

  const cuda::Stream& stream_;
  cudnnHandle_t cudnn_ = nullptr;
  cuda::DeviceBuffer<std::byte> workspace_;
};

}  // namespace lenslet::bench
