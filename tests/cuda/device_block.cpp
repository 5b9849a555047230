#include "tests/cuda/device_block.h"

#include <algorithm>

#include "base/cuda/upload.h"

namespace lenslet::test {
namespace {

constexpr int guard = 0xA5, poison = 0xFF;

}  // namespace

DeviceBlock::DeviceBlock(std::size_t bytes) : bytes_(bytes), memory_(bytes + 2 * guard_bytes) {
  CUDA_CHECK(cudaMemset(memory_.data(), guard, memory_.bytes()));
  if (bytes > 0) CUDA_CHECK(cudaMemset(data(), poison, bytes));
  CUDA_CHECK(cudaDeviceSynchronize());
}

DeviceBlock::DeviceBlock(const void* host, std::size_t bytes) : DeviceBlock(bytes) {
  cuda::copy_to_device(data(), host, bytes);
}

std::vector<std::byte> DeviceBlock::read() {
  std::vector<std::byte> host(bytes_);
  CUDA_CHECK(cudaDeviceSynchronize());
  if (bytes_ > 0) CUDA_CHECK(cudaMemcpy(host.data(), data(), bytes_, cudaMemcpyDeviceToHost));
  return host;
}

bool DeviceBlock::intact() {
  std::vector<std::byte> all(memory_.bytes());
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaMemcpy(all.data(), memory_.data(), all.size(), cudaMemcpyDeviceToHost));
  const auto untouched = [&](std::size_t from) {
    return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(from),
                       all.begin() + static_cast<std::ptrdiff_t>(from + guard_bytes),
                       [](std::byte b) { return b == static_cast<std::byte>(guard); });
  };
  return untouched(0) && untouched(guard_bytes + bytes_);
}

}  // namespace lenslet::test
