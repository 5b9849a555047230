#pragma once
// Poisoned memory between guards, on any device.

#include <cstddef>
#include <vector>

#include "lenslet/tensor.h"

namespace lenslet::test {

/// Memory whose bytes begin as `poison`, NaN in every floating-point type, between guards that are NaN in float32 and
/// float64, too: what a kernel reads outside and uses shows in its result, what it writes outside shows in intact().
class Block {
 public:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr auto poison = std::byte{0xFF};
  /// Byte `i` of a guard, counted from anywhere in steps of four.
  static constexpr std::byte guard(std::size_t i) {
    return std::byte{static_cast<unsigned char>(i % 4 < 2 ? 0xA5 : 0xFF)};
  }

  explicit Block(std::size_t bytes) : bytes_(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  virtual ~Block() = default;

  std::size_t bytes() const { return bytes_; }
  virtual std::byte* data() = 0;
  /// bytes() of the host's memory into the block.
  virtual void write(const void* host) = 0;
  /// The block's bytes, after everything queued on its device.
  virtual std::vector<std::byte> read() = 0;
  /// Whether the guards are as they were made.
  virtual bool intact() = 0;

 private:
  std::size_t bytes_;
};

/// On the host.
class HostBlock final : public Block {
 public:
  /// `beyond`: offset in bytes of data() from an address of that alignment.
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
