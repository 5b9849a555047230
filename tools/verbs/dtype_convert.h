#pragma once
// Float files for models whose ports have another float type.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet::tool {

bool is_float(DType dtype) noexcept;

/// IEEE binary16, exact.
double half_to_double(std::uint16_t bits) noexcept;
/// The nearest binary16, ties to even; infinite beyond 65520.
std::uint16_t double_to_half(double value) noexcept;

/// `tensor` as `dtype`, both float types, rounded to nearest even; anything else as it is. Format nchw.
Tensor convert_float(const Tensor& tensor, DType dtype);

}  // namespace lenslet::tool
