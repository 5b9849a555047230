#pragma once
// A network as a CUDA graph, built node by node. Unlike a capture, other threads of the process cannot invalidate it.
// Only the launches of libraries have to be captured.

#include <cuda_runtime.h>

#include <functional>
#include <vector>

#include "base/cuda/stream.h"

namespace lenslet::cuda {

/// One kernel node: the arguments of cudaLaunchKernelEx. `arguments` are copied.
struct KernelLaunch {
  const void* kernel = nullptr;
  dim3 grid, block, cluster;
  std::size_t shared_bytes = 0;
  void** arguments = nullptr;
  /// The kernel may start before the previous one ends, and waits for it itself (launch.h).
  bool overlap = false;
};

/// A graph under construction; each node depends on the previous one. Use from one thread. Error(device).
class GraphRecorder {
 public:
  GraphRecorder();
  void add(const KernelLaunch& launch);
  /// Records an event after all nodes so far.
  void add(const Event& event);
  /// Captures what `work` queues on `stream`. A library's first call on a device must come before: loading cannot be
  /// captured. Captures of a process take turns and are retried when an application's CUDA calls invalidate them;
  /// Error(device) after too many retries.
  void capture(const Stream& stream, const std::function<void()>& work);
  bool empty() const { return last_.empty(); }
  cudaGraph_t graph() const { return graph_.get(); }

 private:
  static cudaGraph_t create();

  Owned<cudaGraph_t, cudaGraphDestroy> graph_;
  std::vector<cudaGraphNode_t> last_;  // what the next node waits for
  bool last_is_kernel_ = false;
};

/// An executable graph; may be launched any number of times.
class GraphExec {
 public:
  explicit GraphExec(const GraphRecorder& recorder);
  void launch(const Stream& stream) const { CUDA_CHECK(cudaGraphLaunch(exec_.get(), stream.get())); }

 private:
  Owned<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
};

}  // namespace lenslet::cuda
