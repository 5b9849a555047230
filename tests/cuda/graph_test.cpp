#include "base/cuda/graph.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <thread>

#include "base/cuda/buffer.h"
#include "base/cuda/prefetch.h"
#include "base/cuda/session.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

constexpr std::size_t count = 1 << 20;

/// Synchronizes the device as another library in the process may do: during a capture this invalidates the capture.
void disturb() {
  std::thread([] {
    CUDA_CHECK(cudaSetDevice(0));
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(cudaGetLastError());
  }).join();
}

DEVICE_CASE("cuda/graph/captured_work_between_events") {
  const cuda::Stream stream;
  cuda::DeviceBuffer<std::uint8_t> device(count);
  cuda::PinnedBuffer<std::uint8_t> host(count);
  CUDA_CHECK(cudaMemsetAsync(device.data(), 1, count, stream.get()));
  cuda::Event start, stop;
  cuda::GraphRecorder recorder;
  CHECK(recorder.empty());
  recorder.add(start);
  recorder.capture(stream, [&] {
    CUDA_CHECK(cudaMemsetAsync(device.data(), 42, count, stream.get()));
    CUDA_CHECK(cudaMemcpyAsync(host.data(), device.data(), count, cudaMemcpyDeviceToHost, stream.get()));
  });
  recorder.add(stop);
  CHECK_FALSE(recorder.empty());
  const cuda::GraphExec graph(recorder);
  graph.launch(stream);
  stream.synchronize();
  CHECK(stop.ms_since(start) > 0);
  CHECK(host.data()[0] == 42);
  CHECK(host.data()[count - 1] == 42);
}

// Prefetch branches after each node of a chain of three, with sizes that are not multiples of a piece: same results.
DEVICE_CASE("cuda/graph/prefetches_are_branches") {
  const cuda::Stream stream;
  cuda::DeviceBuffer<std::uint8_t> device(count), weights(count);
  CUDA_CHECK(cudaMemsetAsync(weights.data(), 5, count, stream.get()));
  cuda::GraphRecorder recorder;
  CHECK(cuda::recorded_nodes(recorder) == 0);
  for (int value = 1; value <= 3; ++value)
    recorder.capture(stream, [&] { CUDA_CHECK(cudaMemsetAsync(device.data(), value, count, stream.get())); });
  CHECK(cuda::recorded_nodes(recorder) == 3);
  cuda::Prefetches prefetches(recorder);
  for (std::size_t nodes = 1; nodes <= 3; ++nodes)
    prefetches.add(nodes, weights.data() + 16 * nodes, count - 8 * 16 - 8);
  CHECK(cuda::recorded_nodes(recorder) == 6);
  std::size_t roots = 0;
  CUDA_CHECK(cudaGraphGetRootNodes(recorder.graph(), nullptr, &roots));
  CHECK(roots == 1);
  const cuda::GraphExec graph(recorder);
  graph.launch(stream);
  std::uint8_t last = 0, weight = 0;
  CUDA_CHECK(cudaMemcpyAsync(&last, device.data() + count - 1, 1, cudaMemcpyDeviceToHost, stream.get()));
  CUDA_CHECK(cudaMemcpyAsync(&weight, weights.data() + count - 1, 1, cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  CHECK(last == 3);
  CHECK(weight == 5);
}

DEVICE_CASE("cuda/graph/failed_capture_leaves_stream_usable") {
  const cuda::Stream stream;
  cuda::GraphRecorder recorder;
  CHECK_THROWS_AS(recorder.capture(stream, [] { throw std::runtime_error("while capturing"); }), std::runtime_error);
  CHECK(recorder.empty());
  cuda::DeviceBuffer<std::uint8_t> device(64);
  CUDA_CHECK(cudaMemsetAsync(device.data(), 0, 64, stream.get()));
  stream.synchronize();
}

DEVICE_CASE("cuda/graph/disturbed_capture_is_repeated") {
  const cuda::Stream stream;
  cuda::DeviceBuffer<std::uint8_t> device(count);
  cuda::GraphRecorder recorder;
  int attempts = 0;
  recorder.capture(stream, [&] {
    CUDA_CHECK(cudaMemsetAsync(device.data(), 7, count, stream.get()));
    if (++attempts > 3) return;
    disturb();
  });
  CHECK(attempts == 4);
  const cuda::GraphExec graph(recorder);
  graph.launch(stream);
  stream.synchronize();
  std::uint8_t last = 0;
  CUDA_CHECK(cudaMemcpy(&last, device.data() + count - 1, 1, cudaMemcpyDeviceToHost));
  CHECK(last == 7);
}

DEVICE_CASE("cuda/graph/capture_that_is_always_disturbed_is_an_error") {
  const cuda::Stream stream;
  cuda::DeviceBuffer<std::uint8_t> device(count);
  cuda::GraphRecorder recorder;
  const auto capture = [&] {
    recorder.capture(stream, [&] {
      CUDA_CHECK(cudaMemsetAsync(device.data(), 7, count, stream.get()));
      disturb();
    });
  };
  CHECK_ERROR(capture(), device, "captures in a row were disturbed by other CUDA calls");
  stream.synchronize();
}

}  // namespace
}  // namespace lenslet
