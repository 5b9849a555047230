#pragma once
// Activations that exporters spell out in several nodes.

#include <memory>

#include "runtime/passes/edit.h"

namespace lenslet {

/// If `node` ends a group that spells out an activation, replaces the group by one node:
///   x * Sigmoid(x)                       SiLU
///   Clip(x + 3, 0, 6) / 6                HardSigmoid with alpha 1/6, beta 1/2 (also as * 1/6)
///   x * HardSigmoid(x), x * Clip(x + 3, 0, 6) / 6   HardSwish, however the factors are grouped
///   x / 2 * (1 + Erf(x / sqrt(2)))       Gelu, also by Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), however grouped
///   x * Sigmoid(alpha * x)               Swish
///   alpha * Relu(x) + beta, alpha * Relu(x)^2 + beta    AffineRelu, StarRelu, also without alpha or beta
/// Values with other readers stay.
void join_spelled_activation(GraphEdit& edit, NodeId node);

/// The node that `id` spells out, and its input; an empty op: none.
struct SpelledActivation {
  std::shared_ptr<const Op> op;
  ValueId x = no_id;
};
/// Gelu and Swish.
SpelledActivation spelled_gelu(const GraphEdit& edit, ValueId id);

}  // namespace lenslet
