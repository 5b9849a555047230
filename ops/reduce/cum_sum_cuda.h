#pragma once
// Running sums and products on the device.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "base/dtypes.h"

namespace lenslet {

using CumSumTypes = Types<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>;

/// What a running sum or product is kept in: floats in double, integers modulo 2^64.
template <typename T>
using RunningSum = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;

template <bool product, typename Sum>
LENSLET_HOST_DEVICE Sum joined(Sum a, Sum b) {
  return product ? a * b : a + b;
}

/// x and y [outer, length, inner], summed (or multiplied) along the middle: up to each element, or from it on with
/// `reverse`; `exclusive` leaves the element itself out.
struct CumSumShape {
  std::int64_t outer = 1, length = 1, inner = 1;
  bool exclusive = false, reverse = false, product = false;
};

namespace cuda {

struct Context;

/// Device addresses; y may be x. The same bits on every device and in every run.
void cum_sum(const Context& context, DType dtype, const CumSumShape& shape, const void* x, void* y);

}  // namespace cuda
}  // namespace lenslet
