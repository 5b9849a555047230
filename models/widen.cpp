#include "models/widen.h"

#include "base/half.h"

namespace lenslet {

namespace {

template <typename From, typename Convert>
Tensor convert(const Tensor& tensor, Convert to_f32) {
  Tensor result(DType::f32, tensor.shape(), tensor.format());
  const auto* from = static_cast<const From*>(tensor.data());
  auto* to = static_cast<float*>(result.data());
  for (std::int64_t i = 0; i < tensor.elems(); ++i) to[i] = to_f32(from[i]);
  return result;
}

}  // namespace

Tensor widen_to_f32(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::f16:
      return convert<std::uint16_t>(tensor, f32_from_f16);
    case DType::bf16:
      return convert<std::uint16_t>(tensor, f32_from_bf16);
    case DType::f64:
      return convert<double>(tensor, [](double value) { return static_cast<float>(value); });
    default:
      return tensor;
  }
}

}  // namespace lenslet
