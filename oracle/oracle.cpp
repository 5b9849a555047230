#include "oracle/oracle.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

// The families, in any order: operators have one reference each.
// clang-format off
constexpr std::span<const Entry> (*families[])() = {
    elementwise_entries,
    normalization_entries,
    matmul_entries,
    pool_entries,
    shape_entries,
    reduction_entries,
    conv_entries,
    pad_entries,
};
// clang-format on

const Entry* find(std::string_view op) {
  for (const auto family : families)
    for (const Entry& entry : family())
      if (entry.op == op) return &entry;
  return nullptr;
}

// A binary floating-point format decoded by its definition: sign, exponent, mantissa.
double decode(unsigned bits, int exponent_bits, int mantissa_bits) {
  const unsigned mantissa = bits & ((1U << mantissa_bits) - 1U);
  const unsigned exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1U);
  const bool negative = ((bits >> (mantissa_bits + exponent_bits)) & 1U) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1U << exponent_bits) - 1U)
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissa_bits);
  else
    value = std::ldexp(static_cast<double>(mantissa | (1U << mantissa_bits)),
                       static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -value : value;
}

// The nearest value of the format (ties to even), by scaling to integers.
unsigned encode(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0U;
  const unsigned infinity = ((1U << exponent_bits) - 1U) << mantissa_bits;
  if (std::isnan(value)) return infinity | (1U << (mantissa_bits - 1));
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // nearbyint rounds ties to even in the default rounding mode; a carry into the next binade adds up by itself.
  const auto scaled = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  if (exponent > bias) return sign | infinity;
  const std::uint64_t hidden = std::uint64_t{1} << mantissa_bits;
  const std::uint64_t bits =
      scaled < hidden ? scaled : (static_cast<std::uint64_t>(exponent + bias) << mantissa_bits) + (scaled - hidden);
  return sign | (bits >= infinity ? infinity : static_cast<unsigned>(bits));
}

template <typename T>
void widen(const Tensor& tensor, std::vector<double>& values) {
  const auto* from = static_cast<const T*>(tensor.data());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(from[i]);
}

template <typename T>
void narrow(const std::vector<double>& values, Tensor& tensor) {
  auto* to = static_cast<T*>(tensor.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      to[i] = values[i] >= 0x1p63 ? std::numeric_limits<T>::max() : static_cast<T>(values[i]);
    else
      to[i] = static_cast<T>(values[i]);
  }
}

const AttributeValue* find(const AttributeList& attributes, std::string_view name) {
  for (const auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

template <typename T>
T attribute(const AttributeList& attributes, std::string_view name, T fallback) {
  const AttributeValue* value = find(attributes, name);
  if (value == nullptr) return fallback;
  if (const auto* typed = std::get_if<T>(value)) return *typed;
  throw Error(ErrorKind::invalid_argument, fmt::format("oracle: attribute '{}' has another type", name));
}

}  // namespace

Array from_tensor(const Tensor& tensor) {
  Array array;
  array.present = !tensor.empty();
  if (!array.present) return array;
  const Tensor plain = tensor.to_format(formats::nchw);
  array.shape = plain.shape();
  array.dtype = plain.dtype();
  array.values.resize(static_cast<std::size_t>(plain.elems()));
  const auto* half = static_cast<const std::uint16_t*>(plain.data());
  switch (plain.dtype()) {
    case DType::f32:
      widen<float>(plain, array.values);
      break;
    case DType::f64:
      widen<double>(plain, array.values);
      break;
    case DType::f16:
      for (std::size_t i = 0; i < array.values.size(); ++i) array.values[i] = decode(half[i], 5, 10);
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < array.values.size(); ++i) array.values[i] = decode(half[i], 8, 7);
      break;
    case DType::i8:
      widen<std::int8_t>(plain, array.values);
      break;
    case DType::u8:
    case DType::boolean:
      widen<std::uint8_t>(plain, array.values);
      break;
    case DType::i16:
      widen<std::int16_t>(plain, array.values);
      break;
    case DType::u16:
      widen<std::uint16_t>(plain, array.values);
      break;
    case DType::i32:
      widen<std::int32_t>(plain, array.values);
      break;
    case DType::i64:
      widen<std::int64_t>(plain, array.values);
      break;
  }
  return array;
}

Tensor to_tensor(const Array& array) {
  if (!array.present) return {};
  Tensor tensor(array.dtype, array.shape);
  auto* half = static_cast<std::uint16_t*>(tensor.data());
  switch (array.dtype) {
    case DType::f32:
      narrow<float>(array.values, tensor);
      break;
    case DType::f64:
      narrow<double>(array.values, tensor);
      break;
    case DType::f16:
      for (std::size_t i = 0; i < array.values.size(); ++i)
        half[i] = static_cast<std::uint16_t>(encode(array.values[i], 5, 10));
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < array.values.size(); ++i)
        half[i] = static_cast<std::uint16_t>(encode(array.values[i], 8, 7));
      break;
    case DType::i8:
      narrow<std::int8_t>(array.values, tensor);
      break;
    case DType::u8:
    case DType::boolean:
      narrow<std::uint8_t>(array.values, tensor);
      break;
    case DType::i16:
      narrow<std::int16_t>(array.values, tensor);
      break;
    case DType::u16:
      narrow<std::uint16_t>(array.values, tensor);
      break;
    case DType::i32:
      narrow<std::int32_t>(array.values, tensor);
      break;
    case DType::i64:
      narrow<std::int64_t>(array.values, tensor);
      break;
  }
  return tensor;
}

std::optional<std::vector<Array>> run(std::string_view op, const AttributeList& attributes, Inputs inputs) {
  const Entry* entry = find(op);
  if (entry == nullptr) return std::nullopt;
  return entry->run(attributes, inputs);
}

bool knows(std::string_view op) { return find(op) != nullptr; }

std::int64_t integer(const AttributeList& attributes, std::string_view name, std::int64_t fallback) {
  return attribute(attributes, name, fallback);
}
double real(const AttributeList& attributes, std::string_view name, double fallback) {
  return attribute(attributes, name, fallback);
}
std::string text(const AttributeList& attributes, std::string_view name, std::string_view fallback) {
  return attribute(attributes, name, std::string(fallback));
}
std::vector<std::int64_t> integers(const AttributeList& attributes, std::string_view name,
                                   std::vector<std::int64_t> fallback) {
  return attribute(attributes, name, std::move(fallback));
}
bool has(const AttributeList& attributes, std::string_view name) { return find(attributes, name) != nullptr; }

bool has(Inputs inputs, std::size_t i) { return i < inputs.size() && inputs[i].present; }

const Array& at(Inputs inputs, std::size_t i) {
  if (!has(inputs, i)) throw Error(ErrorKind::invalid_argument, fmt::format("oracle: input {} is missing", i));
  return inputs[i];
}

std::vector<std::int64_t> as_integers(const Array& array) {
  std::vector<std::int64_t> integers;
  for (const double value : array.values) {
    if (value >= 0x1p63)
      integers.push_back(std::numeric_limits<std::int64_t>::max());
    else if (value <= -0x1p63)
      integers.push_back(std::numeric_limits<std::int64_t>::min());
    else
      integers.push_back(static_cast<std::int64_t>(value));
  }
  return integers;
}

Array zeros(const Shape& shape, DType dtype) {
  Array array;
  array.shape = shape;
  array.dtype = dtype;
  array.values.assign(static_cast<std::size_t>(shape.elems()), 0.0);
  return array;
}

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis) {
    const auto i = static_cast<std::size_t>(axis);
    strides[i] = strides[i + 1] * shape[axis + 1];
  }
  return strides;
}

std::vector<std::int64_t> index_of(const Shape& shape, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

std::int64_t flat_of(const Shape& shape, std::span<const std::int64_t> index) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) flat = flat * shape[axis] + index[static_cast<std::size_t>(axis)];
  return flat;
}

int axis_of(std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw Error(ErrorKind::invalid_argument, fmt::format("oracle: axis {} of rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace lenslet::oracle
