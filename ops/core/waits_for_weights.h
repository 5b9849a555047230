#pragma once

#include "ops/core/kernel.h"

namespace lenslet {

/// What a CUDA kernel may be besides: one that waits for its prepared weights where they come from memory instead of
/// L2, so that bringing them to L2 while an earlier step runs pays (runtime/exec/early_weights.h).
class WaitsForWeights {
 public:
  virtual ~WaitsForWeights() = default;
  virtual bool waits_for_weights(const Candidate& candidate) const = 0;
};

}  // namespace lenslet
