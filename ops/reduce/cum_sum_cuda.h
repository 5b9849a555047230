#pragma once
// Running sums on the device.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtypes.h"

namespace lenslet {

using CumSumTypes = Types<float, double, std::int32_t, std::int64_t>;

/// What a running sum is kept in: floats in double, integers modulo 2^64.
template <typename T>
using RunningSum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;

/// x and y [outer, length, inner], summed along the middle: up to each element, or from it on with `reverse`;
/// `exclusive` leaves the element itself out.
struct CumSumShape {
  std::int64_t outer = 1, length = 1, inner = 1;
  bool exclusive = false, reverse = false;
};

namespace cuda {

struct Context;

/// Device addresses; y may be x. The same bits on every device and in every run.
void cum_sum(const Context& context, DType dtype, const CumSumShape& shape, const void* x, void* y);

}  // namespace cuda
}  // namespace lenslet
