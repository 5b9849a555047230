#pragma once
// Activations that exporters spell out in several nodes.

#include "runtime/passes/edit.h"

namespace lenslet {

/// If `node` ends a group that spells out an activation, replaces the group by one node:
///   x * Sigmoid(x)                       SiLU
///   Clip(x + 3, 0, 6) / 6                HardSigmoid with alpha 1/6, beta 1/2 (also as * 1/6)
///   x * HardSigmoid(x), x * Clip(x + 3, 0, 6) / 6   HardSwish, however the factors are grouped
/// Values with other readers stay.
void join_spelled_activation(GraphEdit& edit, NodeId node);

}  // namespace lenslet
