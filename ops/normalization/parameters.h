#pragma once
// Types of a normalization's parameters: scale, bias, statistics.

#include <span>

#include "base/dtypes.h"
#include "ops/core/checks.h"

namespace lenslet {

/// Error(invalid_model) unless the inputs behind input 0 have its type, or are float32 beside 16 bits.
inline void require_parameter_dtypes(std::span<const InputInfo> inputs) {
  const bool wider =
      dtypes<HalfTypes>.contains(inputs[0].type.dtype) && present(inputs, 1) && inputs[1].type.dtype == DType::f32;
  require_equal_dtypes(wider ? inputs.subspan(1) : inputs);
}

}  // namespace lenslet
