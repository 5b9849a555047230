#include "base/cuda/prefetch.h"

#include <cstdint>
#include <unordered_map>

#include "base/cuda/check.h"
#include "base/cuda/launch.h"
#include "base/cuda/time_stamp.h"

namespace lenslet::cuda {
namespace {

constexpr unsigned prefetch_blocks = 32, prefetch_threads = 32;

/// Each thread prefetches one piece, then strides to its next ones.
__global__ void prefetch_kernel([[maybe_unused]] const std::uint8_t* data, [[maybe_unused]] std::size_t bytes) {
  wait_for_previous();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr std::size_t piece_bytes = 4 << 10;  // of one instruction; whole ones of 16 bytes
  const std::size_t first = blockIdx.x * prefetch_threads + threadIdx.x;
  for (std::size_t at = first * piece_bytes; at < bytes; at += prefetch_blocks * prefetch_threads * piece_bytes) {
    const std::size_t left = bytes - at;
    const auto size = static_cast<unsigned>((left < piece_bytes ? left : piece_bytes) / 16 * 16);
    if (size > 0)
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(data + at)), "r"(size)
                   : "memory");
  }
#endif
}

}  // namespace

std::size_t recorded_nodes(const GraphRecorder& recorder) {
  std::size_t count = 0;
  CUDA_CHECK(cudaGraphGetNodes(recorder.graph(), nullptr, &count));
  return count;
}

Prefetches::Prefetches(const GraphRecorder& recorder) : graph_(recorder.graph()) {
  std::size_t count = recorded_nodes(recorder);
  if (count == 0) return;
  // The order of listed nodes is unspecified, so it is derived from the edges.
  std::size_t edges = count - 1, roots = 1;
  std::vector<cudaGraphNode_t> from(edges), to(edges);
  std::vector<cudaGraphEdgeData> data(edges);
  if (edges > 0) CUDA_CHECK(cudaGraphGetEdges(graph_, from.data(), to.data(), data.data(), &edges));
  std::unordered_map<cudaGraphNode_t, cudaGraphNode_t> behind;
  for (std::size_t i = 0; i < edges; ++i) behind.emplace(from[i], to[i]);
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphGetRootNodes(graph_, &node, &roots));
  for (; chain_.size() < count; node = behind[node]) chain_.push_back(node);
}

void Prefetches::add(std::size_t nodes, const void* data, std::size_t bytes, std::uint64_t* stamps) {
  const auto* begin = static_cast<const std::uint8_t*>(data);
  void* arguments[] = {&begin, &bytes};
  cudaGraphNode_t node = chain_[nodes - 1];
  const auto stamp = [&] {
    void* to[] = {&stamps};
    if (stamps != nullptr) node = add_behind(node, time_stamp_kernel(), 1, 1, to);
  };
  stamp();
  node = add_behind(node, reinterpret_cast<const void*>(prefetch_kernel), prefetch_blocks, prefetch_threads, arguments);
  if (stamps != nullptr) ++stamps;
  stamp();
}

cudaGraphNode_t Prefetches::add_behind(cudaGraphNode_t node, const void* kernel, unsigned blocks, unsigned threads,
                                       void** arguments) {
  cudaGraphNodeParams parameters{};
  parameters.type = cudaGraphNodeTypeKernel;
  parameters.kernel.func = const_cast<void*>(kernel);
  parameters.kernel.gridDim = dim3(blocks);
  parameters.kernel.blockDim = dim3(threads);
  parameters.kernel.kernelParams = arguments;
  const cudaGraphEdgeData whole{};  // from its end
  cudaGraphNode_t added = nullptr;
  CUDA_CHECK(cudaGraphAddNode(&added, graph_, &node, &whole, 1, &parameters));
  return added;
}

}  // namespace lenslet::cuda
