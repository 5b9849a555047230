#pragma once
// Interleaves two rows.

#include <cstdint>

namespace lenslet {

/// to[(r*count + j)*2] = a[r*row + j], to[(r*count + j)*2 + 1] = b[r*row + j], for r < rows and j < count; 32-bit
/// elements of any kind.
struct InterleavePairs {
  const std::uint32_t* a = nullptr;
  const std::uint32_t* b = nullptr;
  std::int64_t row = 0;  ///< elements from a row of a, or of b, to the next
  std::int64_t count = 0, rows = 0;
  std::uint32_t* to = nullptr;
};
void interleave_pairs(const InterleavePairs& pairs);

}  // namespace lenslet
