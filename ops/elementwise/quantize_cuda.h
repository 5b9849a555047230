#pragma once
// Launchers of quantize.h's functions. All operands are device memory, with strides in `loops`, y first, which must not
// be an operand; a null `zero_point` is not in `loops`.

#include "base/small_types.h"
#include "ops/core/broadcast.h"

namespace lenslet::cuda {

struct Context;

/// y of type `to`, as zero_point: one of QuantizedTypes or a small one.
void quantize(const Context& context, DType to, SmallRounding rounding, const BroadcastLoops& loops, const float* x,
              const float* scale, const void* zero_point, void* y);
/// x of type `from`, as zero_point: one of DequantizedTypes or a small one.
void dequantize(const Context& context, DType from, const BroadcastLoops& loops, const void* x, const float* scale,
                const void* zero_point, float* y);

}  // namespace lenslet::cuda
