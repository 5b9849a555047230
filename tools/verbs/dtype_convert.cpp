#include "tools/verbs/dtype_convert.h"

namespace lenslet::tool {

bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

Tensor convert_float(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || !is_float(tensor.dtype()) || !is_float(dtype)) return tensor;
  return tensor.to_dtype(dtype);
}

}  // namespace lenslet::tool
