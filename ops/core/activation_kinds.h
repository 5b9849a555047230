#pragma once
// The activations, one row each. All code that names or computes an activation is generated from these rows.

// clang-format off
/// KIND(name, parameters, y): y is a function of x and of Activation's alpha and beta (a, b), over a Math m: scalar
/// (ops/core/scalar_math.h) or vector (ops/core/simd/activation-inl.h). NaN stays NaN.
#define LENSLET_ACTIVATIONS(KIND)                                                                   \
  KIND(none,         0, x)                                                                          \
  KIND(relu,         0, m.at_least(0, x))                                                           \
  KIND(clip,         2, m.at_most(b, m.at_least(a, x)))                                             \
  KIND(leaky_relu,   1, m.if_negative(x, x * m(a), x))                                              \
  KIND(sigmoid,      0, m(1) / (m(1) + m.short_exp(m.neg(x))))                                      \
  KIND(silu,         0, m.limited_ratio(x, m(1) + m.short_exp(m.neg(x))))                           \
  KIND(hard_swish,   2, x * m.at_most(1, m.at_least(0, m.mul_add(x, m(a), m(b)))))                  \
  KIND(hard_sigmoid, 2, m.at_most(1, m.at_least(0, m.mul_add(x, m(a), m(b)))))
// clang-format on

/// The names as a list of enumerators.
#define LENSLET_ACTIVATION_NAME(NAME, PARAMETERS, ...) NAME,

/// Defines V activated<kind>(m, x, a, b) with these specifiers: once for scalars and once per instruction set.
#define LENSLET_DEFINE_ACTIVATED(SPECIFIERS)                                                              \
  template <Activation::Kind kind, class M, class V>                                                      \
  SPECIFIERS V activated([[maybe_unused]] M m, V x, [[maybe_unused]] float a, [[maybe_unused]] float b) { \
    LENSLET_ACTIVATIONS(LENSLET_ACTIVATED_BRANCH)                                                         \
  }
#define LENSLET_ACTIVATED_BRANCH(NAME, PARAMETERS, ...) \
  if constexpr (kind == Activation::Kind::NAME) return __VA_ARGS__;
