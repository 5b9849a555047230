#pragma once
// cuDNN's side of the comparison, by the graph interface of cudnn-frontend.

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/stream.h"
#include "lenslet/numerics.h"
#include "tools/measuring/conv_data.h"

namespace lenslet::bench {

using Arithmetic = Numerics::Multiply;

struct PeerTime {
  double conv_us = 0;  ///< the convolution alone; 0: no plan takes it
  double us = 0;  ///< with bias and ReLU: one graph of all three, or that of the convolution and then one of the rest
  double error = 0;  ///< of the latter's output, as ConvReference::error()
  std::string what;  ///< "nhwc eng41_k2=5_k13=1"
};

class Graph;
using NamedPlans = std::vector<std::pair<std::int64_t, std::string>>;

/// The fastest plans over NCHW and NHWC, of all engines with their default knobs and of all configurations that the
/// heuristics offer: each is timed, the three fastest again by graph replays as ours are. Not thread-safe.
class Peer {
 public:
  explicit Peer(const cuda::Stream& stream);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();
  /// Zero times when no plan takes the problem, which has bias and ReLU and no residual. Error(device) when cuDNN
  /// fails.
  PeerTime best(const tool::PosedConv& posed, Arithmetic arithmetic, double seconds);

 private:
  struct Plan {
    double us = 0;  ///< 0: none
    std::string name;
    std::function<void()> run;
  };
  Plan fastest(Graph& graph, const NamedPlans& plans, double flops, double seconds);
  double replay_us(double flops, double seconds, const std::function<void()>& call);

  const cuda::Stream& stream_;
  std::array<cudnnHandle_t, 3> handles_{};  ///< one for each of the graphs that are built at once
  cuda::DeviceBuffer<std::byte> workspace_;
};

}  // namespace lenslet::bench
