#pragma once
// ONNX's numbers of element types (TensorProto.DataType), as attributes such as Cast's `to` carry them.

#include <cstdint>

#include "lenslet/tensor.h"

namespace lenslet {

/// Error(unsupported) names the types we do not have (string, complex64, float8e4m3fn ...); Error(invalid_model) for a
/// number that ONNX does not define.
DType dtype_from_onnx(std::int64_t data_type);
std::int64_t dtype_to_onnx(DType dtype) noexcept;

}  // namespace lenslet
