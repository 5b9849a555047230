#pragma once
// Tells whether x is rounded to TF32 or truncated. A kernel's TF32 tolerance allows ten times half a unit in the last
// place for both operands of a sum, so sums cannot tell; x times one can.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace lenslet::test {

/// Number of elements of y that are not the nearest numbers with 10 mantissa bits to those of x; ties go either way.
inline std::size_t not_rounded_to_tf32(std::span<const float> x, std::span<const float> y) {
  if (x.size() != y.size()) return std::max(x.size(), y.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = x[i], got = y[i];
    const bool short_enough = (std::bit_cast<std::uint32_t>(y[i]) & 0x1FFFU) == 0;
    const double half_a_unit = exact == 0 ? 0 : std::ldexp(1, std::ilogb(exact) - 11);
    if (!short_enough || !(std::abs(got - exact) <= half_a_unit)) ++wrong;
  }
  return wrong;
}

}  // namespace lenslet::test
