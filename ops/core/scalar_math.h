#pragma once
// Scalar arithmetic with the names of the vector one: code over a Math m is written once for the host, the device and
// the CPU's vectors (ops/core/simd/activation-inl.h).

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"
#include "ops/core/activation.h"
#include "ops/core/exp_cuda.h"

namespace lenslet {

LENSLET_DEFINE_SHORT_GELU(LENSLET_HOST_DEVICE inline)

/// float: the device's arithmetic. double and integers (which wrap around): host and device.
template <typename T>
struct ScalarMath {
  static constexpr bool whole = std::is_integral_v<T>, single = std::is_same_v<T, float>;

  LENSLET_HOST_DEVICE T operator()(float constant) const { return static_cast<T>(constant); }

  /// The least integer has no negative and stays itself.
  LENSLET_HOST_DEVICE T neg(T x) const {
    if constexpr (whole)
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
    else
      return -x;
  }
  LENSLET_HOST_DEVICE T bit_not(T x) const { return static_cast<T>(~x); }
  LENSLET_HOST_DEVICE T abs(T x) const {
    if constexpr (single)
      return fabsf(x);
    else
      return x < 0 ? neg(x) : x;
  }
  // Comparisons, because fmaxf and fminf turn NaN into a number.
  LENSLET_HOST_DEVICE T at_least(float low, T x) const { return x < static_cast<T>(low) ? static_cast<T>(low) : x; }
  LENSLET_HOST_DEVICE T at_most(float high, T x) const { return x > static_cast<T>(high) ? static_cast<T>(high) : x; }
  /// The same in one instruction, which may turn NaN into the bound.
  LENSLET_HOST_DEVICE T max(float low, T x) const { return fmaxf(x, low); }
  LENSLET_HOST_DEVICE T min(float high, T x) const { return fminf(x, high); }
  /// a * b + c, with a single rounding where the processor has FMA.
  LENSLET_HOST_DEVICE T mul_add(T a, T b, T c) const {
    if constexpr (single)
      return fmaf(a, b, c);
    else
      return a * b + c;
  }
  LENSLET_HOST_DEVICE T if_negative(T x, T yes, T no) const { return x < 0 ? yes : no; }
  /// x / y, whose limit at -inf / inf is 0. The CPU's vectors leave NaN there.
  LENSLET_HOST_DEVICE T limited_ratio(T x, T y) const { return x == -INFINITY ? T{0} : x / y; }

  LENSLET_HOST_DEVICE T exp(T x) const {
    if constexpr (single)
      return cuda::exp_f32(x);
    else
      return std::exp(x);
  }
  /// e^x for 1 + e^x, within 3 ulp. exp_f32 would give 2 ulp for 29 instructions instead of expf's 10, too many for the
  /// epilogue of a short sum.
  LENSLET_HOST_DEVICE T short_exp(T x) const { return std::exp(x); }
  LENSLET_HOST_DEVICE T gelu(T x) const {
    if constexpr (single)
      return short_gelu(*this, x);
    else
      return x / 2 * std::erfc(-x * 0.70710678118654752440);
  }
  LENSLET_HOST_DEVICE T expm1(T x) const { return std::expm1(x); }
  LENSLET_HOST_DEVICE T log1p(T x) const { return std::log1p(x); }
  LENSLET_HOST_DEVICE T log(T x) const { return std::log(x); }
  LENSLET_HOST_DEVICE T tanh(T x) const { return std::tanh(x); }
  LENSLET_HOST_DEVICE T erf(T x) const { return std::erf(x); }
  LENSLET_HOST_DEVICE T sqrt(T x) const { return std::sqrt(x); }
  LENSLET_HOST_DEVICE T floor(T x) const { return std::floor(x); }
  LENSLET_HOST_DEVICE T ceil(T x) const { return std::ceil(x); }
  LENSLET_HOST_DEVICE T round(T x) const { return std::rint(x); }  // halves to even
  LENSLET_HOST_DEVICE T any_expm1(T x) const { return std::expm1(x); }
  LENSLET_HOST_DEVICE T sin(T x) const { return std::sin(x); }
  LENSLET_HOST_DEVICE T cos(T x) const { return std::cos(x); }
  LENSLET_HOST_DEVICE T tan(T x) const { return std::tan(x); }
  LENSLET_HOST_DEVICE T asin(T x) const { return std::asin(x); }
  LENSLET_HOST_DEVICE T acos(T x) const { return std::acos(x); }
  LENSLET_HOST_DEVICE T atan(T x) const { return std::atan(x); }
  LENSLET_HOST_DEVICE T sinh(T x) const { return std::sinh(x); }
  LENSLET_HOST_DEVICE T cosh(T x) const { return std::cosh(x); }
  LENSLET_HOST_DEVICE T asinh(T x) const { return std::asinh(x); }
  LENSLET_HOST_DEVICE T acosh(T x) const { return std::acosh(x); }
  LENSLET_HOST_DEVICE T atanh(T x) const { return std::atanh(x); }
};

LENSLET_DEFINE_ACTIVATED(LENSLET_HOST_DEVICE inline)

/// The activation of one number; `a` and `b` are Activation's alpha and beta.
template <typename T>
LENSLET_HOST_DEVICE inline T activated(Activation::Kind kind, T x, float a, float b) {
#define LENSLET_CASE(NAME, PARAMETERS, ...) \
  case Activation::Kind::NAME:              \
    return activated<Activation::Kind::NAME>(ScalarMath<T>(), x, a, b);
  switch (kind) { LENSLET_ACTIVATIONS(LENSLET_CASE) }
#undef LENSLET_CASE
  return x;
}

}  // namespace lenslet
