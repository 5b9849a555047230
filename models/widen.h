#pragma once
// 16- and 64-bit floats as f32.

#include "lenslet/tensor.h"

namespace lenslet {

/// An f16, bf16 or f64 tensor as f32 (f64 rounded to nearest); any other tensor as it is.
Tensor widen_to_f32(const Tensor& tensor);

}  // namespace lenslet
