#include "tools/verbs/compare.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tools/verbs/dtype_convert.h"

namespace lenslet::tool {

namespace {

template <typename T>
double load(const Tensor& tensor, std::int64_t i) {
  return static_cast<double>(static_cast<const T*>(tensor.data())[i]);
}

double rms(const Tensor& tensor) {
  double sum = 0, count = 0;
  for (std::int64_t i = 0; i < tensor.elems(); ++i) {
    const double value = element(tensor, i);
    if (!std::isfinite(value)) continue;
    sum += value * value;
    ++count;
  }
  return count > 0 ? std::sqrt(sum / count) : 0;
}

std::string exact_difference(const Tensor& actual, const Tensor& expected) {
  const std::size_t bytes = dtype_bytes(expected.dtype());
  const auto* a = static_cast<const std::byte*>(actual.data());
  const auto* e = static_cast<const std::byte*>(expected.data());
  std::int64_t differing = 0, first = -1;
  for (std::int64_t i = 0; i < expected.elems(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * bytes;
    if (std::memcmp(a + at, e + at, bytes) == 0) continue;
    if (differing++ == 0) first = i;
  }
  if (differing == 0) return {};
  return fmt::format("{} of {} elements differ, the first at {}: {} where {} is expected", differing, expected.elems(),
                     index_text(expected.shape(), first), element(actual, first), element(expected, first));
}

}  // namespace

double element(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::f32:
      return load<float>(tensor, i);
    case DType::f64:
      return load<double>(tensor, i);
    case DType::f16:
      return half_to_double(static_cast<const std::uint16_t*>(tensor.data())[i]);
    case DType::bf16:
      return static_cast<double>(
          std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(tensor.data())[i]} << 16U));
    case DType::i8:
      return load<std::int8_t>(tensor, i);
    case DType::u8:
    case DType::boolean:
      return load<std::uint8_t>(tensor, i);
    case DType::i16:
      return load<std::int16_t>(tensor, i);
    case DType::u16:
      return load<std::uint16_t>(tensor, i);
    case DType::i32:
      return load<std::int32_t>(tensor, i);
    case DType::i64:
      return load<std::int64_t>(tensor, i);
  }
  return 0;
}

std::string index_text(const Shape& shape, std::int64_t flat) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = fmt::format("{}{}{}", flat % shape[axis], text.empty() ? "" : ",", text);
    flat /= shape[axis];
  }
  return "[" + text + "]";
}

std::string difference(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance) {
  if (actual.dtype() != expected.dtype())
    return fmt::format("type {} where {} is expected", to_string(actual.dtype()), to_string(expected.dtype()));
  if (!(actual.shape() == expected.shape()))
    return fmt::format("shape {} where {} is expected", actual.shape().str(), expected.shape().str());
  if (!is_float(expected.dtype())) return exact_difference(actual, expected);

  const double scale = rms(expected);
  const double atol = tolerance.atol * (scale > 0 ? scale : 1.0);
  std::int64_t differing = 0, worst = 0;
  double worst_excess = 0;
  for (std::int64_t i = 0; i < expected.elems(); ++i) {
    const double a = element(actual, i), e = element(expected, i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double allowed = atol + tolerance.rtol * std::fabs(e);
    const double error = std::fabs(a - e);
    // An infinity or NaN on one side only is infinitely wrong.
    const double excess = std::isfinite(a) && std::isfinite(e) ? error / allowed : HUGE_VAL;
    if (excess <= 1) continue;
    ++differing;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (differing == 0) return {};
  return fmt::format("{} of {} elements differ, worst at {}: {} where {} is expected (tolerance {:.3g})", differing,
                     expected.elems(), index_text(expected.shape(), worst), element(actual, worst),
                     element(expected, worst), atol + tolerance.rtol * std::fabs(element(expected, worst)));
}

std::string digest(const Tensor& tensor) {
  const Tensor plain = tensor.to_format(formats::nchw);
  const auto* bytes = static_cast<const unsigned char*>(plain.data());
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < plain.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace lenslet::tool
