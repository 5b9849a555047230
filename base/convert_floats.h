#pragma once
// The conversions of floats that models with other types at their ports make of every element, vectorised.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// What convert_elements() (convert.h) does, to the same bits, from float32 to int32, int8, uint8 and float16 and from
/// float16 to float32; false for other types, or halves that the processor has no instructions for: nothing is done.
bool convert_floats(DType from, const void* x, DType to, void* y, std::int64_t count);

}  // namespace lenslet
