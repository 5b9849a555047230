#pragma once
// Default inputs for checking a network.

#include <cstdint>
#include <vector>

#include "lenslet/model.h"

namespace lenslet::check {

/// Fresh pseudo-random tensors for the planned inputs (oracle/draw.h), the same for a seed on every machine.
std::vector<Tensor> random_inputs(const Model& model, const PlanInfo& plan, std::uint64_t seed);

}  // namespace lenslet::check
