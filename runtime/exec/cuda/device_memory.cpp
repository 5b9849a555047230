#include "runtime/exec/cuda/device_memory.h"

#include <exception>
#include <utility>

#include "runtime/base/cuda/buffer.h"
#include "runtime/base/cuda/session.h"

namespace lenslet::cuda {

void with_device(int device, const std::function<void()>& work) {
  const CurrentDevice current(device);
  work();
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

std::shared_ptr<const void> upload(const Tensor& tensor) {
  auto buffer = std::make_shared<DeviceBuffer<std::byte>>(tensor.bytes());
  if (tensor.bytes() > 0) CUDA_CHECK(cudaMemcpy(buffer->data(), tensor.data(), tensor.bytes(), cudaMemcpyHostToDevice));
  const void* const address = buffer->data();
  return {std::move(buffer), address};
}

void release(int device, std::shared_ptr<const void>& data) noexcept {
  try {
    const CurrentDevice current(device);
    data.reset();
  } catch (const std::exception&) {
    data.reset();  // a device that failed cannot be made current; what can be freed is freed
  }
}

}  // namespace lenslet::cuda
