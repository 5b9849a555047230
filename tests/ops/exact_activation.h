#pragma once
// Activations by the oracle's formulas. apply() and kernels share the rows, so a wrong row would be wrong in both.

#include <cmath>
#include <functional>
#include <string>

#include "ops/core/activation.h"
#include "oracle/families.h"

namespace lenslet::test {

/// In double. SiLU at -inf is its limit, where the quotient would be NaN.
inline std::function<double(double)> exact_activation(const Activation& activation) {
  const auto known = oracle::fused_activation({{"activation", std::string(to_string(activation.kind))},
                                               {"activation_alpha", double{activation.alpha}},
                                               {"activation_beta", double{activation.beta}}});
  const bool quotient = activation.kind == Activation::Kind::silu;
  return [=](double x) { return !known ? x : quotient && x == -INFINITY ? 0 : known(x); };
}

}  // namespace lenslet::test
