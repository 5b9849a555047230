#pragma once
// Memory of weights read from files.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lenslet/tensor.h"

namespace lenslet {

/// Allocates parts aligned for every type. Small parts share blocks large enough for huge pages.
class WeightMemory {
 public:
  struct Part {
    std::span<std::byte> bytes;
    std::shared_ptr<const void> owner;  ///< keeps them
  };

  /// `expected`: upper bound of all requests from this one on; limits the size of a new block.
  Part take(std::uint64_t bytes, std::uint64_t expected) {
    constexpr std::uint64_t alignment = 64, most = std::uint64_t{32} << 20;
    if (bytes >= most / 2) {
      const auto own = allocate(bytes);
      return {{static_cast<std::byte*>(own->data()), own->bytes()}, own};
    }
    if (piece_ == nullptr || piece_->bytes() - taken_ < bytes) {
      piece_ = allocate(std::max(bytes, std::min(expected, most)));
      taken_ = 0;
    }
    const std::span<std::byte> part{static_cast<std::byte*>(piece_->data()) + taken_, static_cast<std::size_t>(bytes)};
    taken_ = std::min(piece_->bytes(), (taken_ + part.size() + alignment - 1) / alignment * alignment);
    return {part, piece_};
  }

 private:
  static std::shared_ptr<Tensor> allocate(std::uint64_t bytes) {
    return std::make_shared<Tensor>(DType::u8, Shape{static_cast<std::int64_t>(bytes)});
  }

  std::shared_ptr<Tensor> piece_;
  std::size_t taken_ = 0;
};

}  // namespace lenslet
