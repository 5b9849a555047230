#pragma once
// Floating point to integer conversion without undefined behaviour.

#include <limits>

#include "base/cuda/host_device.h"

namespace lenslet {

// Constants, because device code may not call numeric_limits.
template <typename T>
inline constexpr T least_value = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T most_value = std::numeric_limits<T>::max();

/// `value` as an integer T, rounded towards zero and saturated; NaN gives 0. ONNX leaves both cases open.
template <typename T>
LENSLET_HOST_DEVICE constexpr T saturate(double value) {
  constexpr T least = least_value<T>, most = most_value<T>;
  if (value != value) return 0;
  // As doubles the lower end is exact; the upper rounds up to a power of two for 64 bits, hence >=.
  if (value <= static_cast<double>(least)) return least;
  if (value >= static_cast<double>(most)) return most;
  return static_cast<T>(value);
}

}  // namespace lenslet
