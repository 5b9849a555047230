#pragma once
// Float files for models whose ports have another float type.

#include "lenslet/tensor.h"

namespace lenslet::tool {

bool is_float(DType dtype) noexcept;

/// `tensor` as `dtype`, both float types, rounded to nearest even; anything else as it is.
Tensor convert_float(const Tensor& tensor, DType dtype);

/// float32 as whole numbers clamped to 0..255, for models that take pixels as uint8.
Tensor to_bytes(const Tensor& tensor);

}  // namespace lenslet::tool
