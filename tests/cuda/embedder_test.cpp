// An embedder's use of a Runner on a CUDA device, and failures of the device.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/device.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "tests/cuda/device_case.h"
#include "tests/exec/embedder_cases.h"
#include "tests/exec/small_net.h"

namespace {

std::atomic<int> left{-1};  // calls until one is refused; negative: none is
std::atomic<bool> refused{false};
std::atomic<int> blocks{0};  // allocated and not freed

bool refuses() {
  if (left < 0 || left-- > 0) return false;
  refused = true;
  return true;
}

}  // namespace

// The linker's --wrap redirects lenslet's calls here.
extern "C" {
cudaError_t __real_cudaMalloc(void** data, size_t bytes);
cudaError_t __wrap_cudaMalloc(void** data, size_t bytes) {
  if (refuses()) return cudaErrorMemoryAllocation;
  const cudaError_t status = __real_cudaMalloc(data, bytes);
  if (status == cudaSuccess && *data != nullptr) ++blocks;
  return status;
}
cudaError_t __real_cudaMallocHost(void** data, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void** data, size_t bytes) {
  if (refuses()) return cudaErrorMemoryAllocation;
  const cudaError_t status = __real_cudaMallocHost(data, bytes);
  if (status == cudaSuccess && *data != nullptr) ++blocks;
  return status;
}
cudaError_t __real_cudaFree(void* data);
cudaError_t __wrap_cudaFree(void* data) {
  if (data != nullptr) --blocks;
  return __real_cudaFree(data);
}
cudaError_t __real_cudaFreeHost(void* data);
cudaError_t __wrap_cudaFreeHost(void* data) {
  if (data != nullptr) --blocks;
  return __real_cudaFreeHost(data);
}
cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return refuses() ? cudaErrorMemoryAllocation : __real_cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t __real_cudaEventCreate(cudaEvent_t* event);
cudaError_t __wrap_cudaEventCreate(cudaEvent_t* event) {
  return refuses() ? cudaErrorMemoryAllocation : __real_cudaEventCreate(event);
}
cudaError_t __real_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags);
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return refuses() ? cudaErrorMemoryAllocation : __real_cudaGraphInstantiate(exec, graph, flags);
}
}

namespace lenslet::test {
namespace {

PlanOptions on_cuda() {
  PlanOptions options;
  options.device = "cuda";
  return options;
}

DEVICE_CASE("cuda/embedder/outputs_given_back_as_inputs") { check_outputs_given_back("cuda"); }

DEVICE_CASE("cuda/embedder/outputs_belong_to_the_runner") { check_outputs_belong_to_the_runner("cuda"); }

DEVICE_CASE("cuda/embedder/observers_that_reach_for_their_runner") {
  check_observers_that_reach_for_their_runner("cuda");
}

// Any refusal by the device, in planning, making a Runner, observing or loading an image, gives an Error of kind
// device, frees everything and leaves the Model usable.
DEVICE_CASE("cuda/embedder/what_the_device_refuses") {
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  const std::vector<std::uint8_t> pixels(40 * 50 * 3, 7);
  ImageSpec spec;
  spec.height = 17;
  spec.width = 19;
  spec.resize_size = 20;
  const Model model = make_model(small_net());
  const auto use_all = [&] {
    Runner runner(model, on_cuda());
    Tensor result = runner.run(x)[0].clone();
    runner.load_image(0, {pixels.data(), 40, 50, 3}, spec);
    runner.run_loaded();
    runner.set_observer([](const LayerEvent&) {});
    runner.run(x);
    runner.time_device(1);
    return result;
  };
  const Tensor expected = use_all();
  const int before = blocks;  // those of the Model
  bool happened = true;
  for (int n = 0; happened; ++n) {
    CAPTURE(n);
    refused = false;
    std::optional<ErrorKind> kind;
    left = n;
    try {
      use_all();
    } catch (const Error& error) {
      kind = error.kind();
    }
    left = -1;
    happened = refused;
    CHECK(kind.has_value() == happened);
    if (kind) CHECK(*kind == ErrorKind::device);
    REQUIRE(blocks == before);
    REQUIRE(n < 1000);
    // A Model with nothing on the device yet.
    if (!happened) break;
    refused = false;
    left = n;
    try {
      Runner(make_model(small_net()), on_cuda());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::device);
    }
    left = -1;
    REQUIRE(blocks == before);
  }
  CHECK(equal(use_all(), expected));
}

DEVICE_CASE("cuda/embedder/fork") {
  const Model model = make_model(small_net());
  const Tensor x = random_tensor({1, 3, 17, 19}, 1);
  auto runner = std::make_unique<Runner>(model, on_cuda());
  const Tensor expected = runner->run(x)[0].clone();
  CHECK(holds_in_child([&] {
    const auto names_fork = [](const Error& error) {
      return error.kind() == ErrorKind::device && std::string(error.what()).find("fork()") != std::string::npos;
    };
    bool right = names_fork(error_of([&] { runner->run(x); }));
    right = right && names_fork(error_of([&] { Runner(model, on_cuda()); }));
    right = right && choose_device("auto").id == "cpu";
    Runner on_the_cpu(model, on_cpu(1, 2));
    right = right && on_the_cpu.run(x)[0].shape() == expected.shape();
    runner.reset();
    return right;
  }));
  CHECK(equal(runner->run(x)[0], expected));
}

}  // namespace
}  // namespace lenslet::test
