#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <utility>

#include "base/cuda/buffer.h"
#include "base/cuda/stream.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

DEVICE_CASE("cuda/buffer/round_trip") {
  constexpr std::size_t count = 100'003;
  const cuda::Stream stream;
  cuda::PinnedBuffer<int> sent(count), received(count);
  cuda::DeviceBuffer<int> device(count);
  std::iota(sent.data(), sent.data() + count, -7);
  CUDA_CHECK(cudaMemsetAsync(device.data(), 0xff, device.bytes(), stream.get()));
  CUDA_CHECK(cudaMemcpyAsync(device.data(), sent.data(), sent.bytes(), cudaMemcpyHostToDevice, stream.get()));
  CUDA_CHECK(cudaMemcpyAsync(received.data(), device.data(), sent.bytes(), cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += received.data()[i] != sent.data()[i];
  CHECK(wrong == 0);
}

DEVICE_CASE("cuda/buffer/move_and_free") {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  const std::size_t before = cuda::DeviceAllocator::held;
  {
    cuda::DeviceBuffer<std::uint8_t> a(bytes);
    CHECK(cuda::DeviceAllocator::held == before + bytes);
    const std::uint8_t* data = a.data();
    cuda::DeviceBuffer<std::uint8_t> b(std::move(a));
    CHECK(b.data() == data);
    CHECK(b.size() == bytes);
    cuda::DeviceBuffer<std::uint8_t> c;
    CHECK(c.data() == nullptr);
    c = std::move(b);
    CHECK(c.data() == data);
    CHECK(cuda::DeviceAllocator::held == before + bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 256 == 0);
  }
  CHECK(cuda::DeviceAllocator::held == before);
}

DEVICE_CASE("cuda/buffer/too_large_is_an_error") {
  CHECK_ERROR(cuda::DeviceBuffer<std::uint8_t>(std::size_t{1} << 50), device, "cudaMalloc");
  CHECK_THROWS_AS(cuda::DeviceBuffer<double>(static_cast<std::size_t>(-1) / 4), std::bad_array_new_length);
  const cuda::DeviceBuffer<float> empty(0);
  CHECK(empty.data() == nullptr);
  const cuda::DeviceBuffer<float> after(1024);  // the device stays usable after the failure
  CHECK(after.data() != nullptr);
}

}  // namespace
}  // namespace lenslet
