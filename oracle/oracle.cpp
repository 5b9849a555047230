#include "oracle/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

// The families, in any order; each operator has one reference.
// clang-format off
constexpr std::span<const Entry> (*families[])() = {
    elementwise_entries,
    normalization_entries,
    matmul_entries,
    pool_entries,
    shape_entries,
    indexing_entries,
    reduction_entries,
    conv_entries,
    quantized_entries,
    pad_entries,
    resize_entries,
    grid_entries,
    sparse_entries,
    recurrent_entries,
};
// clang-format on

const Entry* find(std::string_view op) {
  for (const auto family : families)
    for (const Entry& entry : family())
      if (entry.op == op) return &entry;
  return nullptr;
}

// 2^exponent as a normal number. std::ldexp is slow, and every 16-bit element needs one.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52); }

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
    value = static_cast<double>(mantissa) * power_of_two(1 - bias - mantissa_bits);
  else
    value = static_cast<double>(mantissa | (1U << mantissa_bits)) *
            power_of_two(static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -value : value;
}

// The nearest value of the format (ties to even).
unsigned encode(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = std::signbit(value) ? 1U << (exponent_bits + mantissa_bits) : 0U;
  const unsigned infinity = ((1U << exponent_bits) - 1U) << mantissa_bits;
  if (std::isnan(value)) return sign | infinity | (1U << (mantissa_bits - 1));
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  if (exponent > bias) return sign | infinity;
  // nearbyint rounds ties to even in the default mode; a carry moves to the next binade by itself.
  const auto scaled = static_cast<std::uint64_t>(std::nearbyint(magnitude * power_of_two(mantissa_bits - exponent)));
  const std::uint64_t hidden = std::uint64_t{1} << mantissa_bits;
  const std::uint64_t bits =
      scaled < hidden ? scaled : (static_cast<std::uint64_t>(exponent + bias) << mantissa_bits) + (scaled - hidden);
  return sign | (bits >= infinity ? infinity : static_cast<unsigned>(bits));
}

// What the codes after the finite ones mean in a float of 8 or 4 bits.
enum class Specials { infinity_and_nan, nan_last, nan_is_minus_zero, none, power_of_two };
struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
};

std::optional<SmallFormat> small_format(DType dtype) {
  switch (dtype) {
    case DType::f8e4m3fn:
      return SmallFormat{4, 3, 7, Specials::nan_last};
    case DType::f8e4m3fnuz:
      return SmallFormat{4, 3, 8, Specials::nan_is_minus_zero};
    case DType::f8e5m2:
      return SmallFormat{5, 2, 15, Specials::infinity_and_nan};
    case DType::f8e5m2fnuz:
      return SmallFormat{5, 2, 16, Specials::nan_is_minus_zero};
    case DType::f8e8m0:
      return SmallFormat{8, 0, 127, Specials::power_of_two};
    case DType::f4e2m1:
      return SmallFormat{2, 1, 1, Specials::none};
    default:
      return std::nullopt;
  }
}

double decode(unsigned code, const SmallFormat& format) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (format.specials == Specials::power_of_two)
    return code == 255 ? nan : power_of_two(static_cast<int>(code) - format.bias);
  const unsigned sign = 1U << (format.exponent_bits + format.mantissa_bits), magnitude = code & (sign - 1);
  if (format.specials == Specials::infinity_and_nan) return decode(code, format.exponent_bits, format.mantissa_bits);
  if (format.specials == Specials::nan_last && magnitude == sign - 1) return nan;
  if (format.specials == Specials::nan_is_minus_zero && code == sign) return nan;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double fraction = static_cast<double>(magnitude) * power_of_two(-format.mantissa_bits) - exponent;
  const double value =
      exponent == 0 ? fraction * power_of_two(1 - format.bias) : (1 + fraction) * power_of_two(exponent - format.bias);
  return (code & sign) != 0 ? -value : value;
}

// The code of `value`: the same sign of zero, any NaN for a NaN, nothing if the format lacks the value.
std::optional<unsigned> code_of(double value, const SmallFormat& format) {
  for (unsigned code = 0; code < 256; ++code) {
    if (format.specials == Specials::none && code >= 16) break;
    const double number = decode(code, format);
    if (std::isnan(value) ? std::isnan(number) : number == value && std::signbit(number) == std::signbit(value))
      return code;
  }
  return std::nullopt;
}

std::uint8_t encode(double value, DType dtype, const SmallFormat& format) {
  if (const auto code = code_of(value, format)) return static_cast<std::uint8_t>(*code);
  return static_cast<std::uint8_t>(code_of(round_small(value, dtype, true, "up"), format).value());
}

// f(T()) for the C++ type that stores elements; for 16-bit floats an integer with their bits.
template <typename F>
void with_stored_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::i8:
    case DType::i4:
    case DType::i2:
      return f(std::int8_t{});
    case DType::u8:
    case DType::boolean:
    case DType::u4:
    case DType::u2:
    case DType::f8e4m3fn:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2:
    case DType::f8e5m2fnuz:
    case DType::f8e8m0:
    case DType::f4e2m1:
      return f(std::uint8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return f(std::uint16_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::u32:
      return f(std::uint32_t{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::u64:
      return f(std::uint64_t{});
  }
}

template <typename T>
T narrow(double value) {
  if constexpr (sizeof(T) == 8 && std::is_integral_v<T>)
    if (value >= (std::is_signed_v<T> ? 0x1p63 : 0x1p64)) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
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
  throw Error(ErrorKind::invalid_argument, "oracle: attribute '" + std::string(name) + "' has another type");
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
  const std::optional<SmallFormat> small = small_format(array.dtype);
  with_stored_type(array.dtype, [&]<typename T>(T) {
    const auto* from = static_cast<const T*>(plain.data());
    for (std::size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = small                        ? decode(static_cast<unsigned>(from[i]), *small)
                        : array.dtype == DType::f16  ? decode(static_cast<unsigned>(from[i]), 5, 10)
                        : array.dtype == DType::bf16 ? decode(static_cast<unsigned>(from[i]), 8, 7)
                                                     : static_cast<double>(from[i]);
  });
  return array;
}

Tensor to_tensor(const Array& array) {
  if (!array.present) return {};
  Tensor tensor(array.dtype, array.shape);
  const std::optional<SmallFormat> small = small_format(array.dtype);
  with_stored_type(array.dtype, [&]<typename T>(T) {
    auto* to = static_cast<T*>(tensor.data());
    for (std::size_t i = 0; i < array.values.size(); ++i)
      to[i] = small                        ? static_cast<T>(encode(array.values[i], array.dtype, *small))
              : array.dtype == DType::f16  ? static_cast<T>(encode(array.values[i], 5, 10))
              : array.dtype == DType::bf16 ? static_cast<T>(encode(array.values[i], 8, 7))
                                           : narrow<T>(array.values[i]);
  });
  return tensor;
}

std::optional<std::vector<Array>> run(std::string_view op, const AttributeList& attributes, Inputs inputs,
                                      std::int64_t reach) {
  const Entry* entry = find(op);
  if (entry == nullptr) return std::nullopt;
  if (reach == 0) return entry->run(attributes, inputs);
  AttributeList with_reach = attributes;
  with_reach.emplace_back("reach", reach);
  return entry->run(with_reach, inputs);
}

std::int64_t tile_reach(std::string_view algorithm) {
  if (algorithm.find("fft") != std::string_view::npos) return 40;
  return algorithm.find("winograd") != std::string_view::npos ? 7 : 0;
}

Scaled through(const std::function<double(double)>& f, double value, double scale) {
  const double y = f(value);
  if (!std::isfinite(y) || !std::isfinite(scale)) return {y, std::fabs(y)};
  // Chords at lengths from float32's errors to those of 16 bits.
  double slope = 0;
  for (const double length : {0x1p-20, 0x1p-12, 0x1p-5})
    for (const double step : {-length, length})
      slope = std::max(slope, std::fabs(f(value + step * scale) - y) / length);
  return {y, std::max(std::fabs(y), slope)};
}

Array sums(const Shape& shape, DType dtype) {
  Array array = zeros(shape, dtype);
  array.scale = array.values;
  return array;
}

void put(Array& y, std::size_t i, const Scaled& result) {
  y.values[i] = result.value;
  y.scale[i] = result.scale;
}

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
std::vector<double> reals(const AttributeList& attributes, std::string_view name) {
  return attribute(attributes, name, std::vector<double>());
}
bool has(const AttributeList& attributes, std::string_view name) { return find(attributes, name) != nullptr; }

bool has(Inputs inputs, std::size_t i) { return i < inputs.size() && inputs[i].present; }

const Array& at(Inputs inputs, std::size_t i) {
  if (!has(inputs, i)) throw Error(ErrorKind::invalid_argument, "oracle: input " + std::to_string(i) + " is missing");
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

bool is_small_float(DType dtype) { return small_format(dtype).has_value(); }

double round_small(double value, DType dtype, bool saturate, std::string_view mode) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const SmallFormat format = small_format(dtype).value();
  if (std::isnan(value)) return format.specials == Specials::none ? -0.0 : nan;
  // The finite magnitudes in increasing order, followed by the next value of an unbounded format.
  std::vector<double> numbers;
  for (unsigned code = 0; code < 256; ++code) {
    const double number = decode(code, format);
    if (!std::isfinite(number) || std::signbit(number)) break;
    if (format.specials == Specials::none && code == 8) break;
    numbers.push_back(number);
  }
  const std::size_t finite = numbers.size();
  const bool powers = format.specials == Specials::power_of_two;
  numbers.push_back(powers ? 2 * numbers.back() : 2 * numbers[finite - 1] - numbers[finite - 2]);
  const double magnitude = std::fabs(value);
  if (magnitude < numbers[0]) return saturate ? numbers[0] : nan;
  std::size_t upper = 0;
  while (upper < finite && numbers[upper] < magnitude) ++upper;
  std::size_t chosen = upper;
  if (upper > 0 && magnitude < numbers[upper]) {
    const double below = magnitude - numbers[upper - 1], above = numbers[upper] - magnitude;
    if (powers ? mode == "down" || (mode == "nearest" && below < above)
               : below < above || (below == above && upper % 2 != 0))
      chosen = upper - 1;
  }
  if (chosen == finite && saturate) chosen = finite - 1;
  if (chosen == finite)
    return format.specials == Specials::infinity_and_nan ? std::copysign(HUGE_VAL, value)
           : format.specials == Specials::none           ? std::copysign(numbers[finite - 1], value)
                                                         : nan;
  const bool no_sign = powers || (numbers[chosen] == 0 && format.specials == Specials::nan_is_minus_zero);
  return no_sign ? numbers[chosen] : std::copysign(numbers[chosen], value);
}

bool is_integer(DType dtype) {
  return dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16 &&
         !small_format(dtype);
}

IntegerType integer_type(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return {8, true};
    case DType::u8:
      return {8, false};
    case DType::i16:
      return {16, true};
    case DType::u16:
      return {16, false};
    case DType::i32:
      return {32, true};
    case DType::u32:
      return {32, false};
    case DType::u64:
      return {64, false};
    case DType::i4:
      return {4, true};
    case DType::u4:
      return {4, false};
    case DType::i2:
      return {2, true};
    case DType::u2:
      return {2, false};
    default:
      return {64, true};
  }
}

DType dtype_of_number(std::int64_t number) {
  switch (number) {
    case 1:
      return DType::f32;
    case 2:
      return DType::u8;
    case 3:
      return DType::i8;
    case 4:
      return DType::u16;
    case 5:
      return DType::i16;
    case 6:
      return DType::i32;
    case 7:
      return DType::i64;
    case 9:
      return DType::boolean;
    case 10:
      return DType::f16;
    case 11:
      return DType::f64;
    case 12:
      return DType::u32;
    case 13:
      return DType::u64;
    case 16:
      return DType::bf16;
    case 17:
      return DType::f8e4m3fn;
    case 18:
      return DType::f8e4m3fnuz;
    case 19:
      return DType::f8e5m2;
    case 20:
      return DType::f8e5m2fnuz;
    case 21:
      return DType::u4;
    case 22:
      return DType::i4;
    case 23:
      return DType::f4e2m1;
    case 24:
      return DType::f8e8m0;
    case 25:
      return DType::u2;
    case 26:
      return DType::i2;
    default:
      throw Error(ErrorKind::invalid_argument, "oracle: Cast to an unknown type");
  }
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

Index index_of(const Shape& shape, std::int64_t flat) {
  Index index(static_cast<std::size_t>(shape.rank()));
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
    throw Error(ErrorKind::invalid_argument,
                "oracle: axis " + std::to_string(axis) + " of rank " + std::to_string(rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

double rms(std::span<const double> values) {
  double squares = 0, count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    squares += value * value;
    ++count;
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

double scale_at(const Array& exact, std::size_t i) {
  const double own = std::fabs(exact.values[i]), scale = exact.scale.empty() ? own : exact.scale[i];
  return std::max({std::isfinite(scale) ? scale : 0, std::isfinite(own) ? own : 0, 0x1p-100});
}

double error_at(double got, const Array& exact, std::size_t i, DType stored) {
  const double error = error_beyond_rounding(got, exact.values[i], stored);
  if (error > 0 && is_integer(exact.dtype)) return std::numeric_limits<double>::infinity();
  return error / scale_at(exact, i);
}

double error_beyond_rounding(double got, double exact, DType stored) {
  if (got == exact || (std::isnan(got) && std::isnan(exact))) return 0;
  const double error = std::abs(got - exact);
  if (std::isnan(error) || std::isinf(exact)) return std::numeric_limits<double>::infinity();
  const bool ieee = stored == DType::f16;
  if (!ieee && stored != DType::bf16) return error;
  const double largest = ieee ? 65504 : 0x1.FEp127;
  if (std::isinf(got) && std::abs(exact) > largest && std::signbit(got) == std::signbit(exact)) return 0;
  const double rounding =
      ieee ? std::max(0x1p-11 * std::abs(exact), 0x1p-25) : std::max(0x1p-8 * std::abs(exact), 0x1p-134);
  return std::max(0.0, error - rounding);
}

}  // namespace lenslet::oracle
