#pragma once
// The launcher of ElementwiseChain.

#include <array>
#include <cstdint>
#include <span>

#include "lenslet/tensor.h"
#include "ops/core/broadcast.h"
#include "ops/elementwise/chain.h"

namespace lenslet::cuda {

struct Context;

/// y = the chain of inputs[0] and its operands, inputs[1] ..., in float32, rounded once. `loops` holds y, then the
/// inputs. y, inputs[0] and the operands whose bit in `floats` is 0 (bit 0: the first) have type `dtype`, float32,
/// float16 or bfloat16; the others are float32. y may be any input of its type, shape and layout.
void chain(const Context& context, const Chain& chain, DType dtype, const BroadcastLoops& loops,
           std::span<const void* const> inputs, std::uint32_t floats, void* y);

}  // namespace lenslet::cuda
