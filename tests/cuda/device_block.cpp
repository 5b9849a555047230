#include "tests/cuda/device_block.h"

#include "base/cuda/upload.h"

namespace lenslet::test {
namespace {

/// The guard that begins `from` bytes after the first.
std::vector<std::byte> guard_at(std::size_t from) {
  std::vector<std::byte> bytes(Block::guard_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = Block::guard(from + i);
  return bytes;
}

}  // namespace

DeviceBlock::DeviceBlock(std::size_t bytes) : Block(bytes), memory_(bytes + 2 * guard_bytes) {
  for (const std::size_t from : {std::size_t{0}, guard_bytes + bytes})
    cuda::copy_to_device(memory_.data() + from, guard_at(from).data(), guard_bytes);
  if (bytes > 0) CUDA_CHECK(cudaMemset(data(), static_cast<int>(poison), bytes));
  CUDA_CHECK(cudaDeviceSynchronize());
}

DeviceBlock::DeviceBlock(const void* host, std::size_t bytes) : DeviceBlock(bytes) { write(host); }

void DeviceBlock::write(const void* host) { cuda::copy_to_device(data(), host, bytes()); }

std::vector<std::byte> DeviceBlock::read() {
  std::vector<std::byte> host(bytes());
  CUDA_CHECK(cudaDeviceSynchronize());
  if (bytes() > 0) CUDA_CHECK(cudaMemcpy(host.data(), data(), bytes(), cudaMemcpyDeviceToHost));
  return host;
}

bool DeviceBlock::intact() {
  CUDA_CHECK(cudaDeviceSynchronize());
  for (const std::size_t from : {std::size_t{0}, guard_bytes + bytes()}) {
    std::vector<std::byte> guard(guard_bytes);
    CUDA_CHECK(cudaMemcpy(guard.data(), memory_.data() + from, guard_bytes, cudaMemcpyDeviceToHost));
    if (guard != guard_at(from)) return false;
  }
  return true;
}

}  // namespace lenslet::test
