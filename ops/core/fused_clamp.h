#pragma once
// Activations that CPU kernels apply while the result is in registers.

#include <limits>

#include "ops/core/activation.h"

namespace lenslet {

/// none, relu and clip are a clamp to [low, high] inside the kernel. Other activations are a separate pass over the
/// result while it is in the cache (`after`), so that kernels have no instance per activation.
struct FusedClamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  bool after = false;

  explicit FusedClamp(const Activation& activation) {
    if (activation.kind == Activation::Kind::relu) {
      low = 0;
    } else if (activation.kind == Activation::Kind::clip) {
      low = activation.alpha;
      high = activation.beta;
    }
    after = !is_clamp(activation.kind);
  }
};

}  // namespace lenslet
