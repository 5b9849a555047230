#pragma once

#include <cmath>
#include <cstdint>

namespace lenslet {

/// Bound on max |y - exact| over the rms of exact for a sum of `terms` independent fp32 products, in whatever order:
/// each rounding is about 2^-24 of a partial sum that grows to the output's rms, and roundings are independent, so the
/// error's rms is about 2^-24 * sqrt(terms) / 2 of it; the worst of up to 1e7 outputs lies 5.3 deviations out, and an
/// output of small rms (residual or bias cancel) or an activation steeper than 1 costs a factor. Factor 8 in all,
/// beside 16 roundings for scale, bias, residual and activation.
inline double sum_tolerance(std::int64_t terms) {
  return std::ldexp(8 * (std::sqrt(static_cast<double>(terms)) + 2), -24);
}

}  // namespace lenslet
