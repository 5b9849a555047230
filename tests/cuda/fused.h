#pragma once
// Convolutions with what is fused with them.

#include "ops/conv/conv.h"

namespace lenslet::test {

inline const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
inline const Activation clip{Activation::Kind::clip, -0.5F, 0.75F};
inline const Activation hard_swish{Activation::Kind::hard_swish, 1.0F / 6, 0.5F};

/// With a bias.
inline ConvProblem activated(ConvProblem problem, Activation activation) {
  problem.bias = true;
  problem.activation = activation;
  return problem;
}
/// And a residual.
inline ConvProblem fused(ConvProblem problem, Activation activation) {
  problem.residual = true;
  return activated(problem, activation);
}

}  // namespace lenslet::test
