#pragma once
// Synchronous copies from pageable host memory to the current device. cudaMemcpy may return before the last piece has
// arrived, and a Session's stream does not wait for the legacy stream.

#include <ranges>

#include "base/cuda/buffer.h"

namespace lenslet::cuda {

/// Copies `bytes` from the host's `from` to `to` on the current device; any stream may read them afterwards.
/// Error(device) when a call fails.
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

/// A copy of `host`, a span or vector, on the current device. Error(device) when there is not enough memory.
template <std::ranges::contiguous_range Range>
DeviceBuffer<std::ranges::range_value_t<Range>> upload(const Range& host) {
  DeviceBuffer<std::ranges::range_value_t<Range>> buffer(std::ranges::size(host));
  copy_to_device(buffer.data(), std::ranges::data(host), buffer.bytes());
  return buffer;
}

}  // namespace lenslet::cuda
