#pragma once
// Bytes that come to L2 beside a recorded graph's kernels. Plain C++.

#include <cstddef>
#include <vector>

#include "base/cuda/graph.h"

namespace lenslet::cuda {

/// Nodes that a graph has so far: a moment in it.
std::size_t recorded_nodes(const GraphRecorder& recorder);

/// Adds to a graph that is recorded, whose nodes come one after the other. Use from one thread; Error(device).
class Prefetches {
 public:
  explicit Prefetches(const GraphRecorder& recorder);
  /// When the first `nodes` nodes, 1 at least, are done, `bytes` of device memory from `data`, which begins at a
  /// multiple of 16, begin to come to L2, by few threads, since what they bring they take from the kernels beside them.
  /// Nothing waits for it but the graph's end.
  void add(std::size_t nodes, const void* data, std::size_t bytes);

 private:
  cudaGraph_t graph_;
  std::vector<cudaGraphNode_t> chain_;  // in their order
};

}  // namespace lenslet::cuda
