#pragma once
// Running sums and products on the device.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"

namespace lenslet {

using CumSumTypes = Types<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>;

/// Accumulator type of running sums and products: double for floats, integers modulo 2^64.
template <typename T>
using RunningSum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;

template <bool product, typename Sum>
LENSLET_HOST_DEVICE Sum joined(Sum a, Sum b) {
  return product ? a * b : a + b;
}

/// x and y [outer, length, inner], accumulated along the middle: up to each element, or with `reverse` from it on;
/// `exclusive` leaves the element itself out.
struct CumSumShape {
  std::int64_t outer = 1, length = 1, inner = 1;
  bool exclusive = false, reverse = false, product = false;
};

namespace cuda {

struct Context;

/// Device addresses; y may be x. Bit-identical on all devices and in all runs.
void cum_sum(const Context& context, DType dtype, const CumSumShape& shape, const void* x, void* y);

}  // namespace cuda
}  // namespace lenslet
