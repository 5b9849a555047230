#pragma once
// Launchers of elementwise kernels of two broadcast operands. All lie on the device, where `loops` finds them, y first;
// y may be an operand that lies like it.

#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"
#include "ops/elementwise/binary_kinds.h"

namespace lenslet::cuda {

struct Context;

/// Where there is a context.fault, an integer divisor of 0 (0 to a negative power) is told there and makes a 0.
/// y = a KIND b, each result rounded once; any type of BinaryTypes, and f16 and bf16; not Pow. PRelu: floats up to 32
/// bits only.
void binary(const Context& context, BinaryKind kind, DType dtype, const BroadcastLoops& loops, const void* a,
            const void* b, void* y);

/// y = (a + b) / count, of floats: the last step of a mean.
void add_and_divide(const Context& context, int count, DType dtype, const BroadcastLoops& loops, const void* a,
                    const void* b, void* y);

/// y = a * sigmoid(alpha * a) * b, all of `elems` elements of floats up to 32 bits; y may be a or b.
void swiglu(const Context& context, float alpha, DType dtype, const void* a, const void* b, std::int64_t elems,
            void* y);

/// y = a^b; a and y of type `base`, of PowTypes, b of type `exponent`, of ExponentTypes; or all f16, or
/// all bf16.
void pow(const Context& context, DType base, DType exponent, const BroadcastLoops& loops, const void* a, const void* b,
         void* y);

}  // namespace lenslet::cuda
