#pragma once
// Splits an index into coordinates, in 32-bit arithmetic where the index fits.

#include <cuda_runtime.h>

#include <cstdint>

#include "base/cuda/fast_divider.h"

namespace lenslet::cuda {

/// One digit of a mixed radix: a dimension's length, >= 1.
struct Radix {
  /// Indices below this use 32-bit division.
  static constexpr std::int64_t narrow_end = std::int64_t{1} << 31;

  Radix() = default;
  explicit Radix(std::int64_t length)
      : value(length), divider(length < narrow_end ? static_cast<std::uint32_t>(length) : 1) {}

  std::int64_t value = 1;
  FastDivider divider;
};

/// Takes the innermost digit off `index`. `narrow`: index and radix are below narrow_end; the same for all threads, so
/// that the branch is uniform.
__device__ inline std::int64_t take_digit(std::int64_t& index, const Radix& radix, bool narrow) {
  const std::int64_t quotient = narrow ? radix.divider.divide(static_cast<std::uint32_t>(index)) : index / radix.value;
  const std::int64_t digit = index - quotient * radix.value;
  index = quotient;
  return digit;
}

}  // namespace lenslet::cuda
