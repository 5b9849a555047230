#pragma once
// Rows of unit length, as torch.nn.functional.normalize spells them.

#include <optional>

#include "runtime/passes/edit.h"

namespace lenslet {

/// y = x / max(|x|, epsilon), with |x| the L2 norm along the last axis.
struct UnitRows {
  ValueId x = no_id;
  double epsilon = 0;
};

/// What `y` is of: ReduceL2 of x, Clip or Max, an Expand perhaps, and Div, or Mul by a Reciprocal. Nothing for others.
std::optional<UnitRows> unit_rows(const GraphEdit& edit, ValueId y);

}  // namespace lenslet
