#include "tools/verbs/dtype_convert.h"

#include "oracle/oracle.h"

namespace lenslet::tool {

bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

Tensor convert_float(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || !is_float(tensor.dtype()) || !is_float(dtype)) return tensor;
  oracle::Array wide = oracle::from_tensor(tensor);
  wide.dtype = dtype;
  return oracle::to_tensor(wide);
}

}  // namespace lenslet::tool
