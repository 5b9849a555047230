#pragma once
// Launchers of elementwise kernels of two broadcast operands. All tensors lie on the device, each in its own layout; y
// has the broadcast shape and may be an operand of its shape and layout.

#include "lenslet/tensor.h"
#include "ops/elementwise/binary_kernels.h"

namespace lenslet::cuda {

struct Context;

/// y = a KIND b, each result rounded once; any type that BinaryOp takes; not pow. Integers wrap around; a zero divisor
/// of integers gives 0. prelu: f32 only.
void binary(const Context& context, BinaryKind kind, const Tensor& a, const Tensor& b, Tensor& y);

/// y = (a + b) / count, f32 or f64: the last step of a mean.
void add_and_divide(const Context& context, const Tensor& a, const Tensor& b, int count, Tensor& y);

/// y = a^b; a has y's type: f32, f64, i32 or i64, b any of these. Floats in double, rounded once; whole powers of
/// integers wrap around and truncate, those of zero with a negative exponent give 0.
void pow(const Context& context, const Tensor& a, const Tensor& b, Tensor& y);

}  // namespace lenslet::cuda
