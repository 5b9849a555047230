// CUDA Runners with the app's memory of each kind, the app's stream, and the app's allocator.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>

#include "base/cuda/buffer.h"
#include "base/cuda/stream.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "tests/cuda/device_case.h"
#include "tests/exec/embedder_cases.h"
#include "tests/exec/small_net.h"

namespace lenslet::test {
namespace {

PlanOptions on_cuda() {
  PlanOptions options = on_cpu(2);
  options.device = "cuda";
  return options;
}

/// Kinds of memory for a run's input and output, and how a Runner uses them.
struct Case {
  Model model = make_model(small_net());
  Tensor x = random_tensor({2, 3, 17, 19}, 5);
  Runner runner{model, on_cuda()};
  Tensor expected = runner.run(x)[0].clone();

  std::span<const Tensor> run(void* in, bool in_on_cuda, void* out, bool out_on_cuda, void* stream = nullptr) {
    const std::array inputs{IoTensor{Tensor::view(x.dtype(), x.shape(), in), in_on_cuda}};
    const std::array outputs{IoTensor{Tensor::view(DType::f32, expected.shape(), out), out_on_cuda}};
    return runner.run(inputs, {.outputs = outputs, .cuda_stream = stream});
  }
};

DEVICE_CASE("cuda/app_memory/host") {
  Case c;
  Tensor y(DType::f32, c.expected.shape());
  CHECK(c.run(c.x.data(), false, y.data(), false)[0].data() == y.data());
  CHECK(equal(y, c.expected));
  cuda::PinnedBuffer<std::byte> in(c.x.bytes()), out(y.bytes());
  std::memcpy(in.data(), c.x.data(), c.x.bytes());
  CHECK(equal(c.run(in.data(), false, out.data(), false)[0], c.expected));
  CHECK(equal(c.runner.run(c.x)[0], c.expected));  // in the Runner's memory again
}

DEVICE_CASE("cuda/app_memory/device_and_stream") {
  Case c;
  cuda::DeviceBuffer<std::byte> in(c.x.bytes()), out(c.expected.bytes());
  Tensor y(DType::f32, c.expected.shape());
  const auto fetched = [&] {
    CUDA_CHECK(cudaMemcpy(y.data(), out.data(), y.bytes(), cudaMemcpyDeviceToHost));
    return y;
  };
  const auto outputs_are_on_the_device = [&](std::span<const Tensor> outputs) {
    CHECK(outputs[0].empty());
    CHECK(equal(fetched(), c.expected));
  };
  CUDA_CHECK(cudaMemcpy(in.data(), c.x.data(), c.x.bytes(), cudaMemcpyHostToDevice));
  outputs_are_on_the_device(c.run(in.data(), true, out.data(), true));
  outputs_are_on_the_device(c.run(in.data(), true, out.data(), true, cudaStreamPerThread));

  // The input arrives late in the app's stream, after a copy of 64 MiB.
  const cuda::Stream stream;
  cuda::DeviceBuffer<std::byte> much(std::size_t{64} << 20);
  cuda::PinnedBuffer<std::byte> pinned(c.x.bytes());
  std::memcpy(pinned.data(), c.x.data(), c.x.bytes());
  CUDA_CHECK(cudaMemset(in.data(), 0, in.bytes()));
  CUDA_CHECK(cudaMemset(out.data(), 0, out.bytes()));
  for (int i = 0; i < 20; ++i) CUDA_CHECK(cudaMemsetAsync(much.data(), i, much.bytes(), stream.get()));
  CUDA_CHECK(cudaMemcpyAsync(in.data(), pinned.data(), in.bytes(), cudaMemcpyHostToDevice, stream.get()));
  outputs_are_on_the_device(c.run(in.data(), true, out.data(), true, stream.get()));

  c.runner.set_observer([](const LayerEvent&) {});
  CUDA_CHECK(cudaMemset(out.data(), 0, out.bytes()));
  outputs_are_on_the_device(c.run(in.data(), true, out.data(), true));
}

DEVICE_CASE("cuda/app_memory/host_memory_is_no_device_memory") {
  Case c;
  Tensor y(DType::f32, c.expected.shape());
  CHECK(kind_of([&] { c.run(c.x.data(), true, y.data(), false); }) == ErrorKind::invalid_argument);
  CHECK(kind_of([&] { c.run(c.x.data(), false, y.data(), true); }) == ErrorKind::invalid_argument);
  CHECK(equal(c.runner.run(c.x)[0], c.expected));
}

DEVICE_CASE("cuda/app_memory/outputs_that_no_step_makes") {
  const Model model = make_model(ports_net());
  PlanOptions options = on_cuda();
  options.batch = 1;
  Runner runner(model, options);
  const Tensor x = random_tensor({1, 2, 3, 5}, 2);
  const std::array inputs{IoTensor{x}};
  cuda::DeviceBuffer<std::byte> constant(3 * sizeof(float));
  const std::array outputs{IoTensor{}, IoTensor{}, IoTensor{Tensor::view(DType::f32, {3}, constant.data()), true},
                           IoTensor{}};
  CHECK(equal(runner.run(inputs, {.outputs = outputs})[0], x));
  std::array<float, 3> found{};
  CUDA_CHECK(cudaMemcpy(found.data(), constant.data(), sizeof(found), cudaMemcpyDeviceToHost));
  CHECK(found == std::array{1.0F, 2.0F, 3.0F});
}

DEVICE_CASE("cuda/app_memory/cancelled") {
  Case c;
  const std::array inputs{IoTensor{c.x}};
  std::stop_source before;
  before.request_stop();
  CHECK(kind_of([&] { c.runner.run(inputs, {.stop = before.get_token()}); }) == ErrorKind::cancelled);
  std::stop_source during;
  int last = -1;
  c.runner.set_observer([&](const LayerEvent& event) {
    last = event.step;
    if (last == 1) during.request_stop();
  });
  CHECK(kind_of([&] { c.runner.run(inputs, {.stop = during.get_token()}); }) == ErrorKind::cancelled);
  CHECK(last == 1);
  c.runner.set_observer({});
  CHECK(equal(c.runner.run(c.x)[0], c.expected));
}

DEVICE_CASE("cuda/app_memory/allocator") {
  class Counting final : public Allocator {
   public:
    void* allocate(std::size_t bytes, std::size_t, bool on_device) override {
      CHECK(on_device);
      void* data = nullptr;
      CUDA_CHECK(cudaMalloc(&data, bytes));
      held += bytes;
      return data;
    }
    void release(void* data, std::size_t bytes, std::size_t, bool) noexcept override {
      held -= bytes;
      CUDA_LOG(cudaFree(data));
    }
    std::size_t held = 0;
  };
  Case c;
  const auto allocator = std::make_shared<Counting>();
  PlanOptions options = on_cuda();
  options.allocator = allocator;
  {
    Runner runner(c.model, options);
    CHECK(allocator->held == runner.plan().memory.peak_bytes);
    CHECK(equal(runner.run(c.x)[0], c.expected));
  }
  CHECK(allocator->held == 0);
}

}  // namespace
}  // namespace lenslet::test
