#include "base/cuda/graph.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

#include "base/cuda/exclusive.h"
#include "lenslet/error.h"

namespace lenslet::cuda {
namespace {

/// An application that keeps its devices busy may invalidate several captures in a row.
constexpr int most_captures = 16;

bool disturbed(cudaError_t status) {
  return status == cudaErrorStreamCaptureInvalidated || status == cudaErrorStreamCaptureUnsupported ||
         status == cudaErrorStreamCaptureImplicit || status == cudaErrorStreamCaptureWrongThread;
}

}  // namespace

cudaGraph_t GraphRecorder::create() {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaGraphCreate(&graph, 0));
  return graph;
}

GraphRecorder::GraphRecorder() : graph_(create()) {}

void GraphRecorder::add(const KernelLaunch& launch) {
  cudaGraphNodeParams parameters{};
  parameters.type = cudaGraphNodeTypeKernel;
  parameters.kernel.func = const_cast<void*>(launch.kernel);
  parameters.kernel.gridDim = launch.grid;
  parameters.kernel.blockDim = launch.block;
  parameters.kernel.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
  parameters.kernel.kernelParams = launch.arguments;
  // The edge's port: the kernel lets the next one start here, at its end at the latest.
  cudaGraphEdgeData early{};
  early.from_port = cudaGraphKernelNodePortProgrammatic;
  early.type = cudaGraphDependencyTypeProgrammatic;
  std::vector<cudaGraphEdgeData> edges(last_.size());
  if (launch.overlap && last_is_kernel_) edges.assign(last_.size(), early);
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphAddNode(&node, graph_.get(), last_.data(), edges.data(), last_.size(), &parameters));
  if (launch.cluster.x * launch.cluster.y * launch.cluster.z > 1) {
    cudaLaunchAttributeValue cluster{};
    cluster.clusterDim.x = launch.cluster.x;
    cluster.clusterDim.y = launch.cluster.y;
    cluster.clusterDim.z = launch.cluster.z;
    CUDA_CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeClusterDimension, &cluster));
  }
  last_ = {node};
  last_is_kernel_ = true;
}

void GraphRecorder::add(const Event& event) {
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphAddEventRecordNode(&node, graph_.get(), last_.data(), last_.size(), event.get()));
  last_ = {node};
  last_is_kernel_ = false;
}

void GraphRecorder::capture(const Stream& stream, const std::function<void()>& work) {
  cudaError_t status = cudaSuccess;
  for (int attempt = 0; attempt < most_captures; ++attempt) {
    const std::lock_guard lock(exclusive());
    // Captured into a separate graph, so that a failed capture leaves ours unchanged.
    CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    cudaGraph_t captured = nullptr;
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    status = cudaStreamEndCapture(stream.get(), &captured);
    static_cast<void>(cudaGetLastError());
    const Owned<cudaGraph_t, cudaGraphDestroy> part(captured);
    if (status == cudaSuccess && failure == nullptr) {
      cudaGraphNode_t node = nullptr;
      CUDA_CHECK(cudaGraphAddChildGraphNode(&node, graph_.get(), last_.data(), last_.size(), part.get()));
      last_ = {node};
      last_is_kernel_ = false;
      return;
    }
    if (!disturbed(status)) {
      if (failure != nullptr) std::rethrow_exception(failure);
      CUDA_CHECK(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + attempt));
  }
  throw Error(ErrorKind::device,
              fmt::format("{} captures in a row were disturbed by other CUDA calls of this process: {}", most_captures,
                          cudaGetErrorString(status)));
}

GraphExec::GraphExec(const GraphRecorder& recorder) {
  cudaGraphExec_t exec = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&exec, recorder.graph(), 0));
  exec_ = Owned<cudaGraphExec_t, cudaGraphExecDestroy>(exec);
}

}  // namespace lenslet::cuda
