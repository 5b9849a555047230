#pragma once
// Numbers from one type to another, as on the CPU (ops/core/saturate.h, ops/elementwise/cast.cpp).

#include <cuda_runtime.h>

#include <limits>
#include <type_traits>

namespace lenslet::cuda {

// Constants, because device code may not call numeric_limits.
template <typename T>
inline constexpr T least_value = std::numeric_limits<T>::min();
template <typename T>
inline constexpr T most_value = std::numeric_limits<T>::max();

/// To an integer: towards zero; beyond its range the nearest end, NaN gives 0. To a float: rounded to nearest even.
template <typename T>
__device__ T from_double(double value) {
  if constexpr (std::is_integral_v<T>) {
    // The ends as doubles: the lower is a power of two or 0, the upper rounds to one for 64 bits, hence >=.
    constexpr T least = least_value<T>, most = most_value<T>;
    if (value != value) return 0;
    if (value <= static_cast<double>(least)) return least;
    if (value >= static_cast<double>(most)) return most;
  }
  return static_cast<T>(value);
}

}  // namespace lenslet::cuda
