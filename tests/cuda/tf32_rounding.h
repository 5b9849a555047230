#pragma once
// Is x rounded to TF32, or are its last 13 bits cut off? Half of a unit in the last place of TF32 is what kernels' TF32
// tolerance allows ten times over for both operands of a sum, so that no sum tells: x times one does.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace lenslet::test {

/// How many of y are not the nearest numbers of 10 mantissa bits to those of x; of two as near, either is right.
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
