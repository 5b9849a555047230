#pragma once
// Division by a number that is known at launch: a multiplication and a shift, where the device's own integer division
// takes some twenty instructions.

#include <cuda_runtime.h>

#include <cstdint>

namespace lenslet::cuda {

/// n / divisor and n % divisor for 0 <= n < 2^31 and 1 <= divisor < 2^31 (Granlund and Montgomery, "Division by
/// Invariant Integers using Multiplication", 1994).
class FastDivide {
 public:
  FastDivide() = default;
  explicit FastDivide(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    while ((std::uint64_t{1} << shift_) < divisor_) ++shift_;
    const std::uint64_t excess = (std::uint64_t{1} << shift_) - divisor_;
    multiplier_ = static_cast<std::uint32_t>((excess << 32) / divisor_ + 1);
  }

  __device__ int quotient(int n) const {
    const auto value = static_cast<std::uint32_t>(n);
    return static_cast<int>((__umulhi(value, multiplier_) + value) >> shift_);
  }
  /// n becomes n / divisor; returns n % divisor.
  __device__ int divide(int& n) const {
    const int whole = quotient(n), rest = n - whole * static_cast<int>(divisor_);
    n = whole;
    return rest;
  }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 1, shift_ = 0;
};

}  // namespace lenslet::cuda
