#include "tools/verbs/dtype_convert.h"

#include <bit>
#include <cmath>

#include "tools/verbs/compare.h"

namespace lenslet::tool {

bool is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

double half_to_double(std::uint16_t bits) noexcept {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10U) & 0x1F;
  const int fraction = bits & 0x3FF;
  if (exponent == 0x1F) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 0x400, exponent - 25));
}

std::uint16_t double_to_half(double value) noexcept {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto with_sign = [sign](int bits) { return static_cast<std::uint16_t>(sign | bits); };
  if (std::isnan(value)) return with_sign(0x7E00);
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520.0) return with_sign(0x7C00);
  // Below 2^-14 all steps are 2^-24; above, 2^-10 of the power of two. nearbyint rounds ties to even.
  const int exponent = magnitude < std::ldexp(1.0, -14) ? -14 : std::ilogb(magnitude);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  // A carry out of the fraction runs into the exponent, which is right: the bits count on.
  return with_sign(steps + (exponent + 14) * 0x400);
}

Tensor convert_float(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || !is_float(tensor.dtype()) || !is_float(dtype)) return tensor;
  Tensor result(dtype, tensor.shape());
  for (std::int64_t i = 0; i < tensor.elems(); ++i) {
    const double value = element(tensor, i);
    switch (dtype) {
      case DType::f64:
        static_cast<double*>(result.data())[i] = value;
        break;
      case DType::f16:
        static_cast<std::uint16_t*>(result.data())[i] = double_to_half(value);
        break;
      case DType::bf16: {
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
        const std::uint32_t rounded = std::isnan(value) ? bits | 0x400000U : bits + 0x7FFFU + ((bits >> 16U) & 1U);
        static_cast<std::uint16_t*>(result.data())[i] = static_cast<std::uint16_t>(rounded >> 16U);
        break;
      }
      default:
        static_cast<float*>(result.data())[i] = static_cast<float>(value);
        break;
    }
  }
  return result;
}

}  // namespace lenslet::tool
