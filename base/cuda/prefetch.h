#pragma once
// Prefetches to L2 in parallel with a recorded graph's kernels. Plain C++.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cuda/graph.h"

namespace lenslet::cuda {

/// The number of nodes so far, which identifies a point in the graph.
std::size_t recorded_nodes(const GraphRecorder& recorder);

/// Adds prefetches to a graph being recorded, whose nodes form a chain. Use from one thread; Error(device).
class Prefetches {
 public:
  explicit Prefetches(const GraphRecorder& recorder);
  /// Prefetches `bytes` of device memory at `data` (16-byte aligned) to L2 once the first `nodes` nodes (at least 1)
  /// are done. Uses few threads, because it takes bandwidth from kernels that run at the same time. Only the graph's
  /// end waits for it. Given `stamps`, two on the device, the times before and after its kernel are written there.
  void add(std::size_t nodes, const void* data, std::size_t bytes, std::uint64_t* stamps = nullptr);

 private:
  cudaGraphNode_t add_behind(cudaGraphNode_t node, const void* kernel, unsigned blocks, unsigned threads,
                             void** arguments);

  cudaGraph_t graph_;
  std::vector<cudaGraphNode_t> chain_;  // in their order
};

}  // namespace lenslet::cuda
