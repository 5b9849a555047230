#pragma once
// A network as a CUDA graph, built node by node: nothing that another thread of the process does can disturb it, as it
// can a capture. Only what a library launches by itself has to be captured.

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "base/cuda/stream.h"

namespace lenslet::cuda {

/// One kernel of a graph: what cudaLaunchKernelEx would get. `arguments` are copied.
struct KernelLaunch {
  const void* kernel = nullptr;
  dim3 grid, block, cluster;
  std::size_t shared_bytes = 0;
  void** arguments = nullptr;
  /// It waits by itself for what comes before it (launch.h), and may start while that ends.
  bool overlap = false;
};

/// A graph under construction: each node comes after the one before it. Use from one thread; Error(device).
class GraphRecorder {
 public:
  GraphRecorder();
  void add(const KernelLaunch& launch);
  /// The moment at which all nodes so far are done.
  void add(const Event& event);
  /// What `work` queues on `stream`, captured. The first call of a library on a device must have been made before: what
  /// is loaded then cannot be captured. Captures of a process take turns, and are repeated when an application's own
  /// CUDA calls invalidate them; Error(device) when that happens again and again.
  void capture(const Stream& stream, const std::function<void()>& work);
  bool empty() const { return last_.empty(); }
  cudaGraph_t graph() const { return graph_.get(); }

 private:
  static cudaGraph_t create();

  Owned<cudaGraph_t, cudaGraphDestroy> graph_;
  std::vector<cudaGraphNode_t> last_;  // what the next node waits for
  bool last_is_kernel_ = false;
};

/// Ready to be launched as a whole, any number of times.
class GraphExec {
 public:
  explicit GraphExec(const GraphRecorder& recorder);
  void launch(const Stream& stream) const { CUDA_CHECK(cudaGraphLaunch(exec_.get(), stream.get())); }

 private:
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
};

}  // namespace lenslet::cuda
