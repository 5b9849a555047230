#pragma once
// Conversions for models whose ports have another type than the data.

#include "lenslet/tensor.h"

namespace lenslet::photos {

bool is_float(DType dtype) noexcept;

/// `tensor` as `dtype` if both are float types, rounded to nearest even; otherwise unchanged.
Tensor convert_float(const Tensor& tensor, DType dtype);

/// float32 rounded and clamped to 0..255, for models with uint8 pixels.
Tensor to_bytes(const Tensor& tensor);

}  // namespace lenslet::photos
