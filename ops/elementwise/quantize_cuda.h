#pragma once
// Launchers of quantize.h's functions. All operands lie on the device, where `loops` finds them, y first, which must
// not be another; `zero_point` may be null, and is no operand then.

#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"

namespace lenslet::cuda {

struct Context;

/// y of a type of QuantizedTypes, as zero_point.
void quantize(const Context& context, DType to, const BroadcastLoops& loops, const float* x, const float* scale,
              const void* zero_point, void* y);
/// x of a type of DequantizedTypes, as zero_point.
void dequantize(const Context& context, DType from, const BroadcastLoops& loops, const void* x, const float* scale,
                const void* zero_point, float* y);

}  // namespace lenslet::cuda
