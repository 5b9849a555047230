#pragma once
// Poisoned device memory between guards.

#include <cstddef>
#include <vector>

#include "base/cuda/buffer.h"

namespace lenslet::test {

/// `bytes` of device memory, 256-byte aligned, all 0xFF (NaN in every floating-point type), between two guards.
class DeviceBlock {
 public:
  explicit DeviceBlock(std::size_t bytes);
  DeviceBlock(const void* host, std::size_t bytes);

  std::byte* data() { return memory_.data() + guard_bytes; }
  std::size_t bytes() const { return bytes_; }
  /// The block's bytes, after everything queued on the device.
  std::vector<std::byte> read();
  /// Whether the guards are as they were made.
  bool intact();

 private:
  static constexpr std::size_t guard_bytes = 256;
  std::size_t bytes_;
  cuda::DeviceBuffer<std::byte> memory_;
};

}  // namespace lenslet::test
