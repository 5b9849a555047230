#pragma once
// Poisoned device memory with guards.

#include <cstddef>
#include <vector>

#include "base/cuda/buffer.h"
#include "tests/ops/block.h"

namespace lenslet::test {

/// On the current CUDA device, 256-byte aligned.
class DeviceBlock final : public Block {
 public:
  explicit DeviceBlock(std::size_t bytes);
  DeviceBlock(const void* host, std::size_t bytes);

  std::byte* data() override { return memory_.data() + guard_bytes; }
  void write(const void* host) override;
  std::vector<std::byte> read() override;
  bool intact() override;

 private:
  cuda::DeviceBuffer<std::byte> memory_;
};

}  // namespace lenslet::test
