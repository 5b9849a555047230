#pragma once
// Poisoned memory between guards, on any device.

#include <cstddef>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet::test {

/// Memory poisoned with NaN (in every floating-point type) between guards that are NaN in float32 and float64. A kernel
/// that reads outside and uses the value shows in its result, one that writes outside in intact().
class Block {
 public:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr auto poison = std::byte{0xFF};
  /// Byte `i` of a guard, counted from any multiple of four.
  static constexpr std::byte guard(std::size_t i) {
    return std::byte{static_cast<unsigned char>(i % 4 < 2 ? 0xA5 : 0xFF)};
  }

  explicit Block(std::size_t bytes) : bytes_(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  std::size_t bytes() const { return bytes_; }
  virtual std::byte* data() = 0;
  /// Copies bytes() from the host's memory into the block.
  virtual void write(const void* host) = 0;
  /// The block's bytes, after everything queued on its device.
  virtual std::vector<std::byte> read() = 0;
  /// Whether the guards are unchanged.
  virtual bool intact() = 0;

 private:
  std::size_t bytes_;
};

/// On the host.
class HostBlock final : public Block {
 public:
  /// `beyond`: offset in bytes of data() from an aligned address.
  explicit HostBlock(std::size_t bytes, std::size_t alignment = 64, std::size_t beyond = 0);
  std::byte* data() override { return begin_ + guard_bytes; }
  void write(const void* host) override;
  std::vector<std::byte> read() override { return {data(), data() + bytes()}; }
  bool intact() override;

 private:
  Tensor memory_;
  std::byte* begin_;  ///< of the guard before
};

}  // namespace lenslet::test
