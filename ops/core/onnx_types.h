#pragma once
// ONNX element type numbers (TensorProto.DataType), as in Cast's attribute `to`.

#include <cstdint>
#include <optional>
#include <string>

#include "lenslet/tensor.h"

namespace lenslet {

/// The element type for a number, or nothing when lenslet has none.
std::optional<DType> dtype_of_onnx(std::int64_t data_type) noexcept;
/// The same; Error(unsupported) names a type that lenslet lacks (string, complex64, float6e2m3 ...),
/// Error(invalid_model) a number that ONNX does not define.
DType dtype_from_onnx(std::int64_t data_type);
std::int64_t dtype_to_onnx(DType dtype) noexcept;
/// "float16", "string" ...; "type 99" for a number that ONNX does not define, "no type" for 0.
std::string onnx_type_name(std::int64_t data_type);

}  // namespace lenslet
