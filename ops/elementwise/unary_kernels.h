#pragma once
// Elementwise functions of one float, vectorised.

#include <cstdint>
#include <string_view>

namespace lenslet {

/// y = f(x); alpha and beta mean what the ONNX operator of the name says.
enum class UnaryKind : std::uint8_t {
  identity,
  relu,          ///< max(x, 0)
  leaky_relu,    ///< x < 0 ? alpha x : x
  clip,          ///< min(max(x, alpha), beta)
  sigmoid,       ///< 1 / (1 + exp(-x))
  silu,          ///< x sigmoid(x)
  tanh,          ///< hyperbolic tangent
  hard_sigmoid,  ///< min(max(alpha x + beta, 0), 1)
  hard_swish,    ///< x min(max(alpha x + beta, 0), 1)
  elu,           ///< x < 0 ? alpha (exp(x) - 1) : x
  selu,          ///< beta (x <= 0 ? alpha (exp(x) - 1) : x); ONNX calls beta gamma
  softplus,      ///< log(1 + exp(x))
  mish,          ///< x tanh(softplus(x))
  abs,
  neg,
  exp,
  log,
  sqrt,
  reciprocal,
  floor,
  ceil,
  erf,
};

struct UnaryFunction {
  UnaryKind kind = UnaryKind::identity;
  float alpha = 0, beta = 0;
};

/// y[i] = f(x[i]) for i < n; y may be x. NaN stays NaN. Worst error against the exact value, in units of the last
/// place: 4 for the transcendental ones, a few more for compositions (softplus, mish, elu); the others are exact or
/// rounded once. Single-threaded.
void apply_unary(const UnaryFunction& f, const float* x, float* y, std::int64_t n);

}  // namespace lenslet
