#include "photos/dtype_convert.h"

#include <algorithm>
#include <cmath>

namespace lenslet::photos {

bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

Tensor convert_float(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || !is_float(tensor.dtype()) || !is_float(dtype)) return tensor;
  return tensor.to_dtype(dtype);
}

Tensor to_bytes(const Tensor& tensor) {
  Tensor bytes(DType::u8, tensor.shape());
  const auto source = tensor.values<float>();
  std::transform(source.begin(), source.end(), bytes.values<std::uint8_t>().begin(), [](float value) {
    return static_cast<std::uint8_t>(std::clamp(std::nearbyint(value), 0.0f, 255.0f));
  });
  return bytes;
}

}  // namespace lenslet::photos
