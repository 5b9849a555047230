#pragma once
// Bounds-checked reads of numbers from a file's bytes.

#include <cstddef>
#include <cstdint>
#include <span>

namespace lenslet::photos {

/// Reads from a span. A read outside gives 0 and sets `overrun`, so that a parser can check once at the end.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> data, bool big_endian = true) : data_(data), big_endian_(big_endian) {}

  std::uint32_t u8(std::size_t at) { return number(at, 1); }
  std::uint32_t u16(std::size_t at) { return number(at, 2); }
  std::uint32_t u32(std::size_t at) { return number(at, 4); }
  std::size_t size() const { return data_.size(); }
  bool overrun() const { return overrun_; }

 private:
  std::uint32_t number(std::size_t at, std::size_t count) {
    if (at > data_.size() || data_.size() - at < count) {
      overrun_ = true;
      return 0;
    }
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(data_[at + (big_endian_ ? i : count - 1 - i)]);
    return value;
  }

  std::span<const std::byte> data_;
  bool big_endian_;
  bool overrun_ = false;
};

}  // namespace lenslet::photos
