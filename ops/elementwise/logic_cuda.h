#pragma once
// Launchers of comparisons, boolean operators and Where. All operands are device memory, with strides in `loops`, y
// first, which must not be an operand.

#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"
#include "ops/elementwise/logic.h"

namespace lenslet::cuda {

struct Context;

/// y = a KIND b, bool; a and b of ComparedTypes, booleans as u8. Not: b is a.
void logic(const Context& context, LogicKind kind, DType dtype, const BroadcastLoops& loops, const void* a,
           const void* b, void* y);

/// y = condition ? a : b, for elements of any type with that size.
void where(const Context& context, std::size_t element_bytes, const BroadcastLoops& loops, const void* condition,
           const void* a, const void* b, void* y);

}  // namespace lenslet::cuda
