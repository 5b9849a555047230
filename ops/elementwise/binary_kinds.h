#pragma once
// The elementwise operators of two numbers, one row each, from which operators, documentation, tests and kernels are
// generated. A new operator is a row here and its definition in oracle/elementwise.cpp. Pow, with two types, is
// separate.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/convert.h"
#include "base/cuda/host_device.h"
#include "ops/elementwise/types.h"

// clang-format off
/// KIND(operator, first version read, most inputs, element types, notes, function, vectors): y = function(a, b) of two
/// numbers of type T, folded over further inputs. Integers wrap around: U is unsigned, where overflow is defined, and T
/// for floats. Integer division by zero gives 0: the CPU reports it first, the device never gets one. `vectors` is the
/// same for Highway float vectors u and v; NaN is handled explicitly, because vector maxima differ between machines.
#define LENSLET_BINARY_KINDS(KIND)                                                                                     \
  KIND(Add, 7, 2, NumberTypes, "", T(U(a) + U(b)), hn::Add(u, v))                                                      \
  KIND(Sub, 7, 2, NumberTypes, "", T(U(a) - U(b)), hn::Sub(u, v))                                                      \
  KIND(Mul, 7, 2, NumberTypes, "", T(U(a) * U(b)), hn::Mul(u, v))                                                      \
  KIND(Div, 7, 2, NumberTypes, "integers truncate towards 0", quotient(a, b), hn::Div(u, v))                           \
  KIND(Max, 6, any_number, NumberTypes, "", b != b || b > a ? b : a,                                                   \
       hn::IfThenElse(hn::IsNaN(u), u, hn::IfThenElse(hn::IsNaN(v), v, hn::Max(u, v))))                                \
  KIND(Min, 6, any_number, NumberTypes, "", b != b || b < a ? b : a,                                                   \
       hn::IfThenElse(hn::IsNaN(u), u, hn::IfThenElse(hn::IsNaN(v), v, hn::Min(u, v))))                                \
  KIND(PRelu, 7, 2, FloatTypes, "the slope broadcasts to x", a < 0 ? a * b : a,                                        \
       hn::IfThenElse(hn::Lt(u, hn::Xor(u, u)), hn::Mul(u, v), u))                                                     \
  KIND(BitwiseAnd, 18, 2, IntegerTypes, "", T(a & b), u)                                                               \
  KIND(BitwiseOr, 18, 2, IntegerTypes, "", T(a | b), u)                                                                \
  KIND(BitwiseXor, 18, 2, IntegerTypes, "", T(a ^ b), u)
/// Variants that an attribute of Mod and BitShift chooses; the name is the kind's only.
#define LENSLET_BINARY_VARIANTS(KIND)                                                                                  \
  KIND(Mod, 10, 2, NumberTypes, "", modulo(a, b), each(u, v, [](float p, float q) { return modulo(p, q); }))                                                                  \
  KIND(Fmod, 10, 2, NumberTypes, "", remainder_of(a, b), each(u, v, fmod_f32)) \
  KIND(ShiftLeft, 11, 2, IntegerTypes, "", U(b) < U(bits_of<T>) ? T(U(a) << b) : T(0), u)                              \
  KIND(ShiftRight, 11, 2, IntegerTypes, "", shifted_right(a, b), u)
// clang-format on

namespace lenslet {

#define LENSLET_NAME(NAME, ...) NAME,
enum class BinaryKind : std::uint8_t { LENSLET_BINARY_KINDS(LENSLET_NAME) LENSLET_BINARY_VARIANTS(LENSLET_NAME) Pow };
#undef LENSLET_NAME

/// The types that the kernels of both devices dispatch.
using BinaryTypes = NumberTypes;
#define LENSLET_CHECK(NAME, VERSION, MOST, TYPES, ...) \
  static_assert(dtypes<BinaryTypes>.contains(dtypes<TYPES>), "types that no kernel dispatches: " #NAME);
LENSLET_BINARY_KINDS(LENSLET_CHECK)
LENSLET_BINARY_VARIANTS(LENSLET_CHECK)
#undef LENSLET_CHECK

template <typename T>
LENSLET_HOST_DEVICE T quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    // The least integer divided by -1 wraps around to itself.
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(a));
  }
  return static_cast<T>(a / b);
}

/// Remainder of truncating division: the sign of a. Integers by 0: 0.
template <typename T>
LENSLET_HOST_DEVICE T remainder_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;  // avoids overflow of the least integer
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}

/// std::fmod, exact, without its loop if the quotient q is below 2^27: in double a / b is an integer or at least 2^-51
/// relative away from one, so it truncates correctly; q * b has 51 bits, and the remainder is exact.
inline float fmod_f32(float a, float b) {
  const double x = static_cast<double>(a), y = static_cast<double>(b), quotient = x / y;
  if (!(std::fabs(quotient) < 0x1p27 && std::fabs(b) < INFINITY)) return std::fmod(a, b);
  return std::copysign(static_cast<float>(x - static_cast<double>(static_cast<std::int32_t>(quotient)) * y), a);
}

/// Remainder of flooring division: the sign of b. For floats as in NumPy: also for a zero.
template <typename T>
LENSLET_HOST_DEVICE T modulo(T a, T b) {
  const T rest = remainder_of(a, b);
  if constexpr (std::is_floating_point_v<T>)
    if (rest == 0) return std::copysign(rest, b);
  if constexpr (std::is_signed_v<T>)
    if (rest != 0 && (rest < 0) != (b < 0)) return static_cast<T>(rest + b);
  return rest;
}

template <typename T>
inline constexpr int bits_of = 8 * sizeof(T);

/// a >> b; shifts by all bits or more, or by less than 0, leave copies of the sign.
template <typename T>
LENSLET_HOST_DEVICE T shifted_right(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (static_cast<std::uint64_t>(b) < bits_of<T>) return static_cast<T>(a >> b);
    if constexpr (std::is_signed_v<T>) return a < 0 ? T{-1} : T{0};
  }
  return 0;
}

/// The function of a kind that supports T; undefined for others.
template <typename T>
struct Binary {
  BinaryKind kind;
  LENSLET_HOST_DEVICE T operator()(T a, T b) const {
    using U = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    switch (kind) {
#define LENSLET_CASE(NAME, VERSION, MOST, TYPES, NOTES, FUNCTION, ...) \
  case BinaryKind::NAME:                                               \
    if constexpr (lists<TYPES, T>) return (FUNCTION);                  \
    break;
      LENSLET_BINARY_KINDS(LENSLET_CASE)
      LENSLET_BINARY_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
      case BinaryKind::Pow:
        break;
    }
    return a;
  }
};

/// The same with a compile-time kind.
template <BinaryKind kind, typename T>
struct BinaryOf {
  LENSLET_HOST_DEVICE T operator()(T a, T b) const { return Binary<T>{kind}(a, b); }
};

/// Calls f(BinaryOf<kind, T>()) if the kind supports T.
template <typename T, typename F>
void with_binary(BinaryKind kind, const F& f) {
  switch (kind) {
#define LENSLET_CASE(NAME, VERSION, MOST, TYPES, ...)                         \
  case BinaryKind::NAME:                                                      \
    if constexpr (lists<TYPES, T>) return f(BinaryOf<BinaryKind::NAME, T>()); \
    break;
    LENSLET_BINARY_KINDS(LENSLET_CASE)
    LENSLET_BINARY_VARIANTS(LENSLET_CASE)
#undef LENSLET_CASE
    case BinaryKind::Pow:
      break;
  }
}

/// By squaring, with wrap-around; negative exponents give 1/base^n truncated, or 0 for base 0, which the CPU reports.
template <typename T, typename E>
LENSLET_HOST_DEVICE T whole_power(T base, E exponent) {
  if constexpr (std::is_signed_v<E>)
    if (exponent < 0) {
      if (base == 1) return 1;
      return base == -1 ? static_cast<T>(exponent % 2 == 0 ? 1 : -1) : T{0};
    }
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);
  for (auto rest = static_cast<std::uint64_t>(exponent); rest > 0; rest >>= 1, square *= square)
    if (rest & 1) result *= square;
  return static_cast<T>(result);
}

/// powf errs by up to 4 ulp. Not inlined: it is long on the device, and each thread calls it 12 times.
[[gnu::noinline]] LENSLET_HOST_DEVICE inline double power(double base, double exponent) {
  return std::pow(base, exponent);
}

/// base^exponent; floats are computed in double and rounded once.
template <typename T, typename E>
struct Pow {
  LENSLET_HOST_DEVICE T operator()(T base, E exponent) const {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<E>)
      return whole_power(base, exponent);
    else
      return convert<T>(power(static_cast<double>(base), static_cast<double>(exponent)));
  }
};

}  // namespace lenslet
