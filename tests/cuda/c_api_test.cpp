// lenslet.h on a CUDA device: inputs and outputs in device memory, the app's stream and allocator.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/cuda/buffer.h"
#include "base/cuda/stream.h"
#include "tests/c_api/small_model.h"
#include "tests/cuda/device_case.h"

namespace lenslet::test {
namespace {

lenslet_plan_options on_the_device() {
  lenslet_plan_options options = sized<lenslet_plan_options>();
  options.device = "cuda";
  return options;
}

lenslet_tensor on_the_device(lenslet_tensor tensor, void* data) {
  tensor.data = data;
  tensor.memory = LENSLET_ON_CUDA;
  return tensor;
}

DEVICE_CASE("cuda/c_api/device_memory_and_stream") {
  CRunner c(on_the_device());
  const std::vector<float> expected = c.result();
  const cuda::Stream stream;
  cuda::DeviceBuffer<float> x(c.x.count), y(c.y.count);
  CUDA_CHECK(cudaMemsetAsync(y.data(), 0xFF, y.bytes(), stream.get()));
  CUDA_CHECK(cudaMemcpyAsync(x.data(), c.x.data, x.bytes(), cudaMemcpyHostToDevice, stream.get()));
  const lenslet_tensor in = on_the_device(c.input(), x.data()), out = on_the_device(c.output(), y.data());
  lenslet_run_options options = sized<lenslet_run_options>();
  options.cuda_stream = stream.get();
  REQUIRE_MESSAGE(lenslet_runner_run(c.handle, &in, 1, &out, 1, &options) == LENSLET_OK, lenslet_last_error());
  lenslet_tensor result = sized<lenslet_tensor>();
  REQUIRE(lenslet_runner_result(c.handle, 0, &result) == LENSLET_OK);
  CHECK(result.data == y.data());
  CHECK(result.memory == LENSLET_ON_CUDA);
  CHECK(result.bytes == y.bytes());
  std::vector<float> found(y.size());
  CUDA_CHECK(cudaMemcpy(found.data(), y.data(), y.bytes(), cudaMemcpyDeviceToHost));
  CHECK(found == expected);

  const lenslet_tensor of_the_host = on_the_device(c.input(), c.x.data);
  CHECK(lenslet_runner_run(c.handle, &of_the_host, 1, &out, 1, nullptr) == LENSLET_INVALID_ARGUMENT);
  CHECK(c.result() == expected);
}

DEVICE_CASE("cuda/c_api/allocator") {
  struct Lender {
    std::size_t held = 0;
    int releases = 0;
    static void* allocate(void* context, std::size_t bytes, std::size_t, std::int32_t memory) {
      CHECK(memory == LENSLET_ON_CUDA);
      void* data = nullptr;
      if (cudaMalloc(&data, bytes) != cudaSuccess) return nullptr;
      static_cast<Lender*>(context)->held += bytes;
      return data;
    }
    static void deallocate(void* context, void* data, std::size_t bytes, std::size_t, std::int32_t) {
      static_cast<Lender*>(context)->held -= bytes;
      CHECK(cudaFree(data) == cudaSuccess);
    }
    static void release(void* context) { ++static_cast<Lender*>(context)->releases; }
  } lender;
  const lenslet_allocator allocator = {sizeof(allocator), &lender, Lender::allocate, Lender::deallocate,
                                       Lender::release};
  lenslet_plan_options options = on_the_device();
  std::vector<float> expected;
  {
    CRunner plain(options);
    expected = plain.result();
  }
  options.allocator = &allocator;
  {
    CRunner c(options);
    CHECK(lender.held > 0);
    CHECK(c.result() == expected);
  }
  CHECK(lender.held == 0);
  CHECK(lender.releases == 1);
}

}  // namespace
}  // namespace lenslet::test
