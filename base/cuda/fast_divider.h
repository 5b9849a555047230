#pragma once
// Division by a number known before the launch: a multiplication and a shift instead of the 20 instructions of a 32-bit
// division on a GPU.

#include <bit>
#include <cstdint>

#include "base/cuda/host_device.h"

namespace lenslet::cuda {

/// n / divisor for n < 2^31; divisor in [1, 2^31).
class FastDivider {
 public:
  FastDivider() = default;
  explicit FastDivider(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    const std::uint32_t by = divisor_;
    if (by == 1) return;
    // With l = ceil(log2 by) and m = ceil(2^(31+l) / by): m * by exceeds 2^(31+l) by less than 2^l, so that
    // n * m / 2^(31+l) exceeds n / by by less than 2^-31 * n / by < 1 / by, too little to reach the next integer.
    shift_ = static_cast<std::uint32_t>(std::bit_width(by - 1)) - 1;
    const std::uint64_t power = std::uint64_t{1} << (32 + shift_);
    multiplier_ = static_cast<std::uint32_t>((power + by - 1) / by);
  }

  LENSLET_HOST_DEVICE std::uint32_t divide(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * multiplier_) >> 32);
    return divisor_ == 1 ? n : high >> shift_;
  }
  /// n becomes n / divisor; returns n % divisor. n >= 0.
  LENSLET_HOST_DEVICE int split(int& n) const {
    const auto whole = static_cast<int>(divide(static_cast<std::uint32_t>(n)));
    const int rest = n - whole * static_cast<int>(divisor_);
    n = whole;
    return rest;
  }
  LENSLET_HOST_DEVICE std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 0, shift_ = 0;
};

}  // namespace lenslet::cuda
