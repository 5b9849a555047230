#pragma once
// A workspace in parts, each 256-byte aligned: laid out once without memory, to learn its size, then with it.

#include <cstddef>
#include <cstdint>

namespace lenslet::cuda {

class Parts {
 public:
  explicit Parts(std::byte* memory = nullptr) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    auto* const taken = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return taken;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

}  // namespace lenslet::cuda
