#pragma once
// Activations by the oracle's formulas. apply() and kernels share the rows, so a wrong row would be wrong in both.

#include <cmath>
#include <functional>
#include <string>

#include "ops/core/activation.h"
#include "oracle/families.h"

namespace lenslet::test {

/// In double. SiLU and GELU at -inf are their limits, where the formulas give NaN.
inline std::function<double(double)> exact_activation(const Activation& activation) {
  const auto known = oracle::fused_activation({{"activation", std::string(to_string(activation.kind))},
                                               {"activation_alpha", double{activation.alpha}},
                                               {"activation_beta", double{activation.beta}}});
  const bool limit = activation.kind == Activation::Kind::silu || activation.kind == Activation::Kind::gelu;
  return [=](double x) { return !known ? x : limit && x == -INFINITY ? 0 : known(x); };
}

}  // namespace lenslet::test
