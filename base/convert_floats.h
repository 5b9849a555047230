#pragma once
// Vectorised conversions between float32 and the types that models have at their inputs and outputs.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// convert_elements() (convert.h), bit-identical, from float32 to int32, int8, uint8, float16 and bfloat16 and from
/// float16 and bfloat16 to float32. Returns false and does nothing for other types, or for float16 without processor
/// support.
bool convert_floats(DType from, const void* x, DType to, void* y, std::int64_t count);

}  // namespace lenslet
