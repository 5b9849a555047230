#include "runtime/exec/cuda/device_memory.h"

#include <exception>
#include <span>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"

namespace lenslet::cuda {

void with_device(int device, const std::function<void()>& work) {
  const CurrentDevice current(device);
  work();
}

std::shared_ptr<const void> upload(const Tensor& tensor) {
  const std::span bytes(static_cast<const std::byte*>(tensor.data()), tensor.bytes());
  const auto buffer = std::make_shared<DeviceBuffer<std::byte>>(upload(bytes));
  return {buffer, buffer->data()};
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
