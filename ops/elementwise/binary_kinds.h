#pragma once
// Functions of two numbers, on the host and on the device.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "ops/elementwise/convert.h"

namespace lenslet {

enum class BinaryKind : std::uint8_t {
  add,
  sub,
  mul,
  div,    ///< integers towards zero
  max,    ///< NaN when either is NaN
  min,    ///< NaN when either is NaN
  prelu,  ///< a < 0 ? a * b : a, of floats
  pow,
};

/// a KIND b, but for pow. Integers wrap around as two's complement does: computed unsigned, where overflow is defined.
/// A zero divisor of integers gives 0: the CPU reports it before, the device is given none.
template <typename T>
struct Binary {
  BinaryKind kind;
  LENSLET_HOST_DEVICE T operator()(T a, T b) const {
    using U = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    switch (kind) {
      case BinaryKind::add:
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case BinaryKind::sub:
        return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
      case BinaryKind::mul:
        return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case BinaryKind::div:
        if constexpr (std::is_integral_v<T>) {
          if (b == 0) return 0;
          // The least integer divided by -1 wraps around to itself.
          if constexpr (std::is_signed_v<T>)
            if (b == -1) return static_cast<T>(U{0} - static_cast<U>(a));
        }
        return static_cast<T>(a / b);
      case BinaryKind::max:
        return b != b || b > a ? b : a;
      case BinaryKind::min:
        return b != b || b < a ? b : a;
      case BinaryKind::prelu:
        if constexpr (std::is_floating_point_v<T>) return a < 0 ? a * b : a;
        break;
      case BinaryKind::pow:
        break;
    }
    return a;
  }
};

/// The same with a kind that is known when it is compiled.
template <BinaryKind kind, typename T>
struct BinaryOf {
  LENSLET_HOST_DEVICE T operator()(T a, T b) const { return Binary<T>{kind}(a, b); }
};

/// Calls f(BinaryOf<kind, T>()) for the kind, if it is one of `kinds`.
template <typename T, BinaryKind... kinds, typename F>
void with_binary(BinaryKind kind, const F& f) {
  ((kind == kinds ? f(BinaryOf<kinds, T>()) : void()), ...);
}

/// By squaring, wrapping around; a negative exponent leaves 1/base^n truncated, and 0 of zero, which the CPU reports.
template <typename T>
LENSLET_HOST_DEVICE T whole_power(T base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    return base == -1 ? static_cast<T>(exponent % 2 == 0 ? 1 : -1) : T{0};
  }
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);
  for (; exponent > 0; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<T>(result);
}

/// powf is only good to 4 units of the last place. Not inlined: on the device it is long, and each thread calls it 12
/// times.
[[gnu::noinline]] LENSLET_HOST_DEVICE inline double power(double base, double exponent) {
  return std::pow(base, exponent);
}

/// base^exponent; floats in double, rounded once.
template <typename T, typename E>
struct Pow {
  LENSLET_HOST_DEVICE T operator()(T base, E exponent) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E>)
      return whole_power(base, static_cast<std::int64_t>(exponent));
    else
      return convert<T>(power(static_cast<double>(base), static_cast<double>(exponent)));
  }
};

}  // namespace lenslet
