#pragma once
// Launchers of elementwise kernels with two broadcast operands. All are device memory, with strides in `loops`, y
// first; y may be an operand with the same layout.

#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"
#include "ops/elementwise/binary_kinds.h"

namespace lenslet::cuda {

struct Context;

/// y = a KIND b, each result rounded once; any type of BinaryTypes, and f16 and bf16; not Pow. PRelu: floats up to 32
/// bits only. With a context.fault, integer division by 0 (0 to a negative power) is reported there and gives 0.
void binary(const Context& context, BinaryKind kind, DType dtype, const BroadcastLoops& loops, const void* a,
            const void* b, void* y);

/// y = (a + b) / count for floats: the last step of a mean.
void add_and_divide(const Context& context, int count, DType dtype, const BroadcastLoops& loops, const void* a,
                    const void* b, void* y);

/// y = a * sigmoid(alpha * a) * b, for `elems` contiguous floats of up to 32 bits; y may be a or b.
void swiglu(const Context& context, float alpha, DType dtype, const void* a, const void* b, std::int64_t elems,
            void* y);

/// y = a^b; a and y have type `base` of PowTypes, b type `exponent` of ExponentTypes; or all are f16, or all bf16.
void pow(const Context& context, DType base, DType exponent, const BroadcastLoops& loops, const void* a, const void* b,
         void* y);

}  // namespace lenslet::cuda
