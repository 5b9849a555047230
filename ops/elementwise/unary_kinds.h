#pragma once
// The elementwise operators of one input, one row each, from which names, operators, documentation, tests and kernels
// are generated. A new operator is a row here and its definition in oracle/elementwise.cpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ops/core/never.h"
#include "ops/core/scalar_math.h"
#include "ops/elementwise/types.h"

// clang-format off
/// KIND(operator, domain, first version read, element types, (parameters a and b), equivalent activation, function):
/// the function of x, a and b is written over a Math m as in ops/core/activation_kinds.h, with ScalarMath's methods.
/// NaN stays NaN.
#define LENSLET_UNARY_KINDS(KIND)                                                                                      \
  KIND(Relu, "", 6, SignedTypes, (), relu, return activated<relu>(m, x, a, b))                                         \
  KIND(LeakyRelu, "", 6, FloatTypes, ({"alpha", 0.01}), leaky_relu, return activated<leaky_relu>(m, x, a, b))          \
  KIND(Sigmoid, "", 6, FloatTypes, (), sigmoid, return activated<sigmoid>(m, x, a, b))                                 \
  KIND(SiLU, "lenslet", never, FloatTypes, (), silu, return activated<silu>(m, x, a, b))                               \
  /* a max(0, x) + b: the learnable affine block behind a Relu of HGNetV2. */                                          \
  KIND(AffineRelu, "lenslet", never, FloatTypes, ({"alpha", 1}, {"beta", 0}), affine_relu,                             \
       return activated<affine_relu>(m, x, a, b))                                                                      \
  /* a max(0, x)^2 + b: Yu et al., "MetaFormer Baselines for Vision", 2022. */                                        \
  KIND(StarRelu, "lenslet", never, FloatTypes, ({"alpha", 1}, {"beta", 0}), star_relu,                                 \
       return activated<star_relu>(m, x, a, b))                                                                        \
  KIND(HardSigmoid, "", 6, FloatTypes, ({"alpha", 0.2}, {"beta", 0.5}), hard_sigmoid,                                  \
       return activated<hard_sigmoid>(m, x, a, b))                                                                     \
  KIND(HardSwish, "", 14, FloatTypes, ({"", 1.0F / 6.0F}, {"", 0.5}), hard_swish,                                      \
       return activated<hard_swish>(m, x, a, b))                                                                       \
  KIND(Tanh, "", 6, FloatTypes, (), none, return m.tanh(x))                                                            \
  KIND(Elu, "", 6, FloatTypes, ({"alpha", 1}), none, return m.if_negative(x, m(a) * m.expm1(x), x))                    \
  KIND(Selu, "", 6, FloatTypes, ({"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}), none,    \
       return m(b) * m.if_negative(x, m(a) * m.expm1(x), x))                                                           \
  KIND(Softplus, "", 1, FloatTypes, (), none, return m.max(0, x) + m.log1p(m.exp(m.neg(m.abs(x)))))                    \
  /* tanh(log(1 + w)) = (w^2 + 2w) / (w^2 + 2w + 2) with w = e^x; beyond 20 the quotient is 1 in float. */             \
  KIND(Mish, "", 18, FloatTypes, (), none,                                                                             \
       const V w = m.exp(m.min(20, x)); const V t = w * (w + m(2)); return x * (t / (t + m(2))))                       \
  KIND(Gelu, "", 20, FloatTypes, ({"approximate", 0, {"none", "tanh"}}), gelu,                                         \
       if (a == 0) return activated<gelu>(m, x, a, b);                                                                 \
       return activated<gelu_tanh>(m, x, a, b))                                                                        \
  KIND(Abs, "", 6, SignedTypes, (), none, return m.abs(x))                                                             \
  KIND(Neg, "", 6, SignedTypes, (), none, return m.neg(x))                                                             \
  KIND(Exp, "", 6, FloatTypes, (), none, return m.exp(x))                                                              \
  KIND(Log, "", 6, FloatTypes, (), none, return m.log(x))                                                              \
  KIND(Sqrt, "", 6, FloatTypes, (), none, return m.sqrt(x))                                                            \
  KIND(Reciprocal, "", 6, FloatTypes, (), none, return m(1) / x)                                                       \
  KIND(Floor, "", 6, FloatTypes, (), none, return m.floor(x))                                                          \
  KIND(Ceil, "", 6, FloatTypes, (), none, return m.ceil(x))                                                            \
  KIND(Erf, "", 9, FloatTypes, (), none, return m.erf(x))                                                              \
  KIND(Swish, "", 24, FloatTypes, ({"alpha", 1}), swish, return activated<swish>(m, x, a, b))                          \
  KIND(Celu, "", 12, FloatTypes, ({"alpha", 1}), none,                                                                 \
       return m.at_least(0, x) + m.at_most(0, m(a) * m.any_expm1(x / m(a))))                                           \
  KIND(Softsign, "", 1, FloatTypes, (), none, return x / (m(1) + m.abs(x)))                                            \
  /* 0 but for NaN, where neither side is it. */                                                                       \
  KIND(ThresholdedRelu, "", 1, FloatTypes, ({"alpha", 1}), none,                                                      \
       return m.if_negative(m(a) - x, x, m.at_most(0, m.at_least(0, x))))                                              \
  KIND(Shrink, "", 9, FloatTypes, ({"lambd", 0.5}, {"bias", 0}), none,                                                 \
       const V rest = m.if_negative(m(a) - x, x - m(b), m.at_most(0, m.at_least(0, x)));                               \
       return m.if_negative(x + m(a), x + m(b), rest))                                                                 \
  KIND(Sign, "", 9, SignedTypes, (), none, return m.if_negative(x, m(-1), m.if_negative(m.neg(x), m(1), x)))           \
  KIND(Round, "", 11, FloatTypes, (), none, return m.round(x))                                                         \
  KIND(Sin, "", 7, FloatTypes, (), none, return m.sin(x))                                                              \
  KIND(Cos, "", 7, FloatTypes, (), none, return m.cos(x))                                                              \
  KIND(Tan, "", 7, FloatTypes, (), none, return m.tan(x))                                                              \
  KIND(Asin, "", 7, FloatTypes, (), none, return m.asin(x))                                                            \
  KIND(Acos, "", 7, FloatTypes, (), none, return m.acos(x))                                                            \
  KIND(Atan, "", 7, FloatTypes, (), none, return m.atan(x))                                                            \
  KIND(Sinh, "", 9, FloatTypes, (), none, return m.sinh(x))                                                            \
  KIND(Cosh, "", 9, FloatTypes, (), none, return m.cosh(x))                                                            \
  KIND(Asinh, "", 9, FloatTypes, (), none, return m.asinh(x))                                                          \
  KIND(Acosh, "", 9, FloatTypes, (), none, return m.acosh(x))                                                          \
  KIND(Atanh, "", 9, FloatTypes, (), none, return m.atanh(x))                                                          \
  KIND(BitwiseNot, "", 18, IntegerTypes, (), none, return m.bit_not(x))
// clang-format on

namespace lenslet {

/// A function's parameter beside x: an attribute, or a constant if it has no name.
struct UnaryParameter {
  std::string_view name = {};
  double value = 0;  ///< the attribute's default
  /// The words of a string attribute, the default first. The function gets the word's index.
  std::array<std::string_view, 3> words = {};
};

struct UnaryRow {
  std::string_view name, domain;
  int min_opset = 1;
  DTypeSet types;
  std::array<UnaryParameter, 2> parameters;
  /// none: it is no Activation. A row with words is one by its first word.
  Activation::Kind activation = Activation::Kind::none;
};

#define LENSLET_NAME(NAME, ...) NAME,
enum class UnaryKind : std::uint8_t { LENSLET_UNARY_KINDS(LENSLET_NAME) };
#undef LENSLET_NAME

#define LENSLET_UNWRAP(...) __VA_ARGS__
#define LENSLET_ROW(NAME, DOMAIN, VERSION, TYPES, PARAMETERS, ACTIVATION, ...) \
  {#NAME, DOMAIN, VERSION, dtypes<TYPES>, {{LENSLET_UNWRAP PARAMETERS}}, Activation::Kind::ACTIVATION},
inline constexpr UnaryRow unary_table[] = {LENSLET_UNARY_KINDS(LENSLET_ROW)};
#undef LENSLET_ROW
#undef LENSLET_UNWRAP

/// The types that the kernels of both devices dispatch.
using UnaryTypes = NumberTypes;
#define LENSLET_CHECK(NAME, DOMAIN, VERSION, TYPES, ...) \
  static_assert(dtypes<UnaryTypes>.contains(dtypes<TYPES>), "types that no kernel dispatches: " #NAME);
LENSLET_UNARY_KINDS(LENSLET_CHECK)
#undef LENSLET_CHECK

constexpr const UnaryRow& row_of(UnaryKind kind) { return unary_table[static_cast<std::size_t>(kind)]; }

/// An operator's function: y = KIND(x, a, b).
struct UnaryFunction {
  UnaryKind kind = UnaryKind::Relu;
  float a = 0, b = 0;
};

/// Defines V unary<kind>(m, x, a, b) with these specifiers: once here and once per instruction set.
#define LENSLET_DEFINE_UNARY(SPECIFIERS)                                                              \
  template <UnaryKind kind, class M, class V>                                                         \
  SPECIFIERS V unary([[maybe_unused]] M m, V x, [[maybe_unused]] float a, [[maybe_unused]] float b) { \
    using enum Activation::Kind;                                                                      \
    LENSLET_UNARY_KINDS(LENSLET_UNARY_BRANCH)                                                         \
  }
#define LENSLET_UNARY_BRANCH(NAME, DOMAIN, VERSION, TYPES, PARAMETERS, ACTIVATION, ...) \
  if constexpr (kind == UnaryKind::NAME) {                                              \
    __VA_ARGS__;                                                                        \
  }
LENSLET_DEFINE_UNARY(LENSLET_HOST_DEVICE inline)

/// The function of one number.
template <UnaryKind kind, typename T>
struct Unary {
  float a, b;
  LENSLET_HOST_DEVICE T operator()(T x) const { return unary<kind>(ScalarMath<T>(), x, a, b); }
};

/// Calls f(Unary<kind, T>) if the operator supports T.
template <typename T, typename F>
void with_unary(const UnaryFunction& function, const F& f) {
  const auto of = [&]<UnaryKind kind>(std::integral_constant<UnaryKind, kind>) {
    if constexpr (row_of(kind).types.contains(dtype_of<T>::value)) f(Unary<kind, T>{function.a, function.b});
  };
#define LENSLET_CASE(NAME, ...) \
  case UnaryKind::NAME:         \
    return of(std::integral_constant<UnaryKind, UnaryKind::NAME>());
  switch (function.kind) { LENSLET_UNARY_KINDS(LENSLET_CASE) }
#undef LENSLET_CASE
}

}  // namespace lenslet
