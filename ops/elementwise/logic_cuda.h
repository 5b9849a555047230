#pragma once
// Launchers of comparisons, boolean operators and Where. All tensors lie on the device, each in its own layout, and are
// broadcast to y, which must not be an operand.

#include "lenslet/tensor.h"
#include "ops/elementwise/logic.h"

namespace lenslet::cuda {

struct Context;

/// y = a KIND b as 0 or 1, bool; any type that the operators take. lnot: b is not looked at (pass a).
void logic(const Context& context, LogicKind kind, const Tensor& a, const Tensor& b, Tensor& y);

/// y = condition ? a : b; condition bool, any type.
void where(const Context& context, const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y);

}  // namespace lenslet::cuda
