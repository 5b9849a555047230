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
  KIND(hard_sigmoid, 2, m.at_most(1, m.at_least(0, m.mul_add(x, m(a), m(b)))))                      \
  KIND(affine_relu,  2, m.mul_add(m.at_least(0, x), m(a), m(b)))                                    \
  KIND(star_relu,    2, m.mul_add(m.at_least(0, x) * m.at_least(0, x), m(a), m(b)))                 \
  KIND(swish,        1, m.limited_ratio(x, m(1) + m.short_exp(m.neg(m(a) * x))))                    \
  KIND(gelu,         0, m.gelu(x))                                                                  \
  /* By tanh: 1 + tanh(u) = 2 / (1 + e^-2u). */                                                     \
  KIND(gelu_tanh,    0, m.limited_ratio(x, m(1) + m.short_exp(x * m.mul_add(x * x, m(-0.07135482F), m(-1.59576912F)))))
// clang-format on

/// The names as a list of enumerators.
#define LENSLET_ACTIVATION_NAME(NAME, PARAMETERS, ...) NAME,

/// Defines V short_gelu(m, x): x P(X < x) of a normal X = max(0, x) - a P(X < -a) with a = |x|, where nothing cancels.
/// P(X < -a) e^(a^2 / 2) is a polynomial in t = 1 / (1 + 0.35 a), fitted by weighted least squares: the probability is
/// within 1.1e-7 of 1, and within 3.5e-6 of its own size. Below -12.75 the result is that of -12.75, -2e-36: no
/// subnormal numbers, which would slow down the next product.
#define LENSLET_DEFINE_SHORT_GELU(SPECIFIERS)               \
  template <class M, class V>                               \
  SPECIFIERS V short_gelu(M m, V x) {                       \
    const V a = m.at_most(12.75F, m.abs(x));                \
    const V t = m(1) / m.mul_add(m(0.35F), a, m(1));        \
    V p = m.mul_add(m(0.0450138616F), t, m(-0.185947120F)); \
    p = m.mul_add(p, t, m(0.213387085F));                   \
    p = m.mul_add(p, t, m(0.00716033621F));                 \
    p = m.mul_add(p, t, m(0.143868274F));                   \
    p = m.mul_add(p, t, m(0.136730606F));                   \
    p = m.mul_add(p, t, m(0.139787008F));                   \
    const V tail = m.short_exp(m(-0.5F) * a * a) * (p * t); \
    return m.mul_add(m.neg(a), tail, m.at_least(0, x));     \
  }

/// Defines V activated<kind>(m, x, a, b) with these specifiers: once for scalars and once per instruction set.
#define LENSLET_DEFINE_ACTIVATED(SPECIFIERS)                                                              \
  template <Activation::Kind kind, class M, class V>                                                      \
  SPECIFIERS V activated([[maybe_unused]] M m, V x, [[maybe_unused]] float a, [[maybe_unused]] float b) { \
    LENSLET_ACTIVATIONS(LENSLET_ACTIVATED_BRANCH)                                                         \
  }
#define LENSLET_ACTIVATED_BRANCH(NAME, PARAMETERS, ...) \
  if constexpr (kind == Activation::Kind::NAME) return __VA_ARGS__;
