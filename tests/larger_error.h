#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace lenslet::test {

/// The larger of the previous error and a new one. NaN counts as infinite: std::max(worst, NaN) is `worst`, so an
/// unwritten result would pass.
inline double larger_error(double worst, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
}

}  // namespace lenslet::test
