#include "tools/verbs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "oracle/oracle.h"
#include "photos/dtype_convert.h"

namespace lenslet::tool {

namespace {

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
  const auto shown = static_cast<std::size_t>(first);
  return fmt::format("{} of {} elements differ, the first at {}: {} where {} is expected", differing, expected.elems(),
                     index_text(expected.shape(), first), oracle::from_tensor(actual).values[shown],
                     oracle::from_tensor(expected).values[shown]);
}

}  // namespace

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
  if (!photos::is_float(expected.dtype())) return exact_difference(actual, expected);

  const std::vector<double> got = oracle::from_tensor(actual).values, wanted = oracle::from_tensor(expected).values;
  const double scale = oracle::rms(wanted);
  const double atol = tolerance.atol * (scale > 0 ? scale : 1.0);
  // The rule of onnx.backend.test: two units of the last place for bfloat16, since each operator may round.
  const bool coarse = expected.dtype() == DType::bf16 && tolerance.rtol > 0;
  const double rtol = coarse ? std::max(tolerance.rtol, 0x1p-6) : tolerance.rtol;
  std::size_t differing = 0, worst = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double a = got[i], e = wanted[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double allowed = atol + rtol * std::fabs(e);
    const double error = std::fabs(a - e);
    // An infinity or NaN on one side only is an infinite error.
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
                     wanted.size(), index_text(expected.shape(), static_cast<std::int64_t>(worst)), got[worst],
                     wanted[worst], atol + rtol * std::fabs(wanted[worst]));
}

std::string digest(const Tensor& tensor) {
  const Tensor plain = tensor.to_format(formats::nchw);
  const auto* bytes = static_cast<const unsigned char*>(plain.data());
  std::uint64_t hash = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < plain.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

}  // namespace lenslet::tool
