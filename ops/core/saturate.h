#pragma once
// Floating point to integer without undefined behaviour.

#include <limits>

namespace lenslet {

/// `value` towards zero as a T (an integer type); beyond T's range the nearest end, NaN gives 0. ONNX leaves both open.
template <typename T>
constexpr T saturate(double value) {
  if (value != value) return 0;
  // The ends as doubles: the lower is a power of two or 0, the upper rounds to one for 64 bits, hence >=.
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace lenslet
