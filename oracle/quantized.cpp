// References of 8-bit integer products: Conv and MatMul, exact in double, of operands minus their zero points. The
// result is requantised with a float multiplier, as in ONNX Runtime.

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

// Element of a parameter that has one value in all, or one along some axes of `shape` from `first` on.
double parameter_at(const Array& parameter, const Shape& shape, std::int64_t flat, int first) {
  if (parameter.values.size() == 1) return parameter.values[0];
  const Index index = index_of(shape, flat);
  std::int64_t at = 0;
  for (int d = 0; d < parameter.shape.rank(); ++d)
    at = at * parameter.shape[d] + (parameter.shape[d] == 1 ? 0 : index[static_cast<std::size_t>(first + d)]);
  return parameter.values[static_cast<std::size_t>(at)];
}

// First axis of a parameter: 0 with full rank, `axis` for a list.
int first_axis(const Array& parameter, const Shape& shape, int axis) {
  return parameter.shape.rank() == shape.rank() ? 0 : axis;
}

Array without_zero(const Array& x, Inputs inputs, std::size_t zero, int axis) {
  Array y = x;
  y.dtype = DType::f32;
  if (!has(inputs, zero)) return y;
  for (std::size_t i = 0; i < y.values.size(); ++i)
    y.values[i] -=
        parameter_at(inputs[zero], x.shape, static_cast<std::int64_t>(i), first_axis(inputs[zero], x.shape, axis));
  return y;
}

Array as_int32(Array sums) {
  sums.dtype = DType::i32;
  sums.scale.clear();
  for (double& value : sums.values)
    value =
        static_cast<double>(static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int64_t>(value))));
  return sums;
}

Array requantize(Array y, const std::vector<float>& multipliers, const Array& zero) {
  y.dtype = zero.dtype;
  const double low = zero.dtype == DType::i8 ? -128 : 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const float product = static_cast<float>(y.values[i]) * multipliers[i];
    const double value = std::nearbyint(static_cast<double>(product)) + zero.values.at(0);
    y.values[i] = std::isnan(value) ? 0 : std::clamp(value, low, low + 255);
  }
  return y;
}

Array sums_of(std::string_view op, const AttributeList& attributes, const std::vector<Array>& inputs) {
  return as_int32(std::move(run(op, attributes, inputs)->at(0)));
}

float as_float(double value) { return static_cast<float>(value); }

std::vector<Array> matmul_integer(const AttributeList&, Inputs inputs) {
  const Array &a = at(inputs, 0), &b = at(inputs, 1);
  return {sums_of("MatMul", {},
                  {without_zero(a, inputs, 2, a.shape.rank() - 2), without_zero(b, inputs, 3, b.shape.rank() - 1)})};
}

std::vector<Array> qlinear_matmul(const AttributeList&, Inputs inputs) {
  const Array &a = at(inputs, 0), &b = at(inputs, 3);
  const Array &a_scale = at(inputs, 1), &b_scale = at(inputs, 4);
  Array y = sums_of("MatMul", {},
                    {without_zero(a, inputs, 2, a.shape.rank() - 2), without_zero(b, inputs, 5, b.shape.rank() - 1)});
  std::vector<float> multipliers;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto flat = static_cast<std::int64_t>(i);
    const int rank = y.shape.rank();
    // A parameter of full rank has 1 in the other operand's axis.
    const float left = as_float(parameter_at(a_scale, y.shape, flat, first_axis(a_scale, y.shape, rank - 2)));
    const float right = as_float(parameter_at(b_scale, y.shape, flat, first_axis(b_scale, y.shape, rank - 1)));
    multipliers.push_back(left * right / as_float(at(inputs, 6).values.at(0)));
  }
  return {requantize(std::move(y), multipliers, at(inputs, 7))};
}

std::vector<Array> conv_integer(const AttributeList& attributes, Inputs inputs) {
  return {sums_of("Conv", attributes,
                  {without_zero(at(inputs, 0), inputs, 2, 0), without_zero(at(inputs, 1), inputs, 3, 0)})};
}

std::vector<Array> qlinear_conv(const AttributeList& attributes, Inputs inputs) {
  const Array& w_scale = at(inputs, 4);
  std::vector<Array> operands{without_zero(at(inputs, 0), inputs, 2, 0), without_zero(at(inputs, 3), inputs, 5, 0)};
  if (has(inputs, 8)) {
    operands.push_back(inputs[8]);
    operands.back().dtype = DType::f32;
  }
  Array y = sums_of("Conv", attributes, operands);
  std::vector<float> multipliers;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const float w = as_float(parameter_at(w_scale, y.shape, static_cast<std::int64_t>(i), 1));
    multipliers.push_back(as_float(at(inputs, 1).values.at(0)) * w / as_float(at(inputs, 6).values.at(0)));
  }
  return {requantize(std::move(y), multipliers, at(inputs, 7))};
}

// Codes of 8 bits: float32 arithmetic, rounded at each step, by definition.
struct Codes {
  float scale, zero_point;
  float number(double code) const { return (as_float(code) - zero_point) * scale; }
};
Codes codes_of(const AttributeList& attributes, const std::string& name) {
  return {as_float(real(attributes, name + "_scale", 1)),
          as_float(static_cast<double>(integer(attributes, name + "_zero_point", 0)))};
}

Array stored(const AttributeList& attributes, Array y, const std::vector<float>& quotients) {
  y.dtype = text(attributes, "stored_type", "uint8") == "int8" ? DType::i8 : DType::u8;
  const double low = y.dtype == DType::i8 ? -128 : 0;
  const std::vector<std::int64_t> range = integers(attributes, "stored_range", {-128, 255});
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double code =
        std::nearbyint(static_cast<double>(quotients[i])) + static_cast<double>(integer(attributes, "y_zero_point", 0));
    y.values[i] = std::clamp(std::clamp(code, low, low + 255), static_cast<double>(range.at(0)),
                             static_cast<double>(range.at(1)));
  }
  return y;
}

// A sum's ratios of scales, a's and b's to y's, with 15 bits, and the constant that makes up for their rounding at code
// 128 (unsigned). Nothing if both are exact: then float32 decides ties.
struct FixedSum {
  double factor[2], constant;
  static std::optional<FixedSum> of(const Codes (&operands)[2], const double (&signs)[2], const Codes& y,
                                    double y_sign) {
    const double ratios[] = {static_cast<double>(operands[0].scale) / y.scale,
                             static_cast<double>(operands[1].scale) / y.scale};
    const double most = std::max(ratios[0], ratios[1]);
    int bits = 14 - std::ilogb(most);
    if (std::ldexp(most, bits) > 32767) --bits;
    FixedSum sum{{}, y.zero_point + y_sign + 0.5};
    for (int i = 0; i < 2; ++i) {
      sum.factor[i] = std::ldexp(std::nearbyint(std::ldexp(ratios[i], bits)), -bits);
      sum.constant += 128 * (ratios[i] - sum.factor[i]) - ratios[i] * (operands[i].zero_point + signs[i]);
    }
    sum.constant = std::ldexp(std::nearbyint(std::ldexp(sum.constant, bits)), -bits);
    const bool exact = sum.factor[0] == ratios[0] && sum.factor[1] == ratios[1];
    if (exact || bits < 14 || bits > 20) return std::nullopt;
    return sum;
  }
};

template <bool multiplies>
std::vector<Array> quantized_binary(const AttributeList& attributes, Inputs inputs) {
  const double signs[] = {at(inputs, 0).dtype == DType::i8 ? 128.0 : 0, at(inputs, 1).dtype == DType::i8 ? 128.0 : 0};
  std::vector<Array> operands{at(inputs, 0), at(inputs, 1)};
  for (Array& operand : operands) operand.dtype = DType::f32;
  // Broadcast both: by Add of zeros of the result's shape.
  Array y = run("Add", {}, operands)->at(0);
  const Array nothing = zeros(y.shape, DType::f32);
  const Array a = run("Add", {}, std::vector<Array>{operands[0], nothing})->at(0);
  const Array b = run("Add", {}, std::vector<Array>{operands[1], nothing})->at(0);
  const Codes of[] = {codes_of(attributes, "a"), codes_of(attributes, "b")}, of_y = codes_of(attributes, "y");
  const double y_sign = text(attributes, "stored_type", "uint8") == "int8" ? 128 : 0;
  const auto fixed = multiplies ? std::nullopt : FixedSum::of(of, signs, of_y, y_sign);
  std::vector<float> quotients;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    if (fixed) {
      const double sum = fixed->factor[0] * (a.values[i] + signs[0]) + fixed->factor[1] * (b.values[i] + signs[1]);
      quotients.push_back(as_float(std::floor(sum + fixed->constant) - y_sign) - of_y.zero_point);
      continue;
    }
    const float left = of[0].number(a.values[i]), right = of[1].number(b.values[i]);
    quotients.push_back((multiplies ? left * right : left + right) / of_y.scale);
  }
  y.scale.clear();
  return {stored(attributes, std::move(y), quotients)};
}

std::vector<Array> quantized_table(const AttributeList& attributes, Inputs inputs) {
  Array y = at(inputs, 0);
  const std::vector<std::int64_t> table = integers(attributes, "table");
  y.dtype = text(attributes, "stored_type", "uint8") == "int8" ? DType::i8 : DType::u8;
  for (double& value : y.values)
    value = static_cast<double>(table.at(static_cast<std::uint8_t>(static_cast<std::int64_t>(value))));
  return {y};
}

std::vector<Array> quantized_global_average_pool(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  Array y = zeros(x.shape.with(2, 1).with(3, 1), DType::f32);
  const Codes of_x = codes_of(attributes, "x"), of_y = codes_of(attributes, "y");
  const auto pixels = static_cast<std::size_t>(x.shape[2] * x.shape[3]);
  const float factor = as_float(static_cast<double>(of_x.scale) / of_y.scale / static_cast<double>(pixels));
  std::vector<float> quotients;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    double sum = 0;
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) sum += x.values[i * pixels + pixel] - of_x.zero_point;
    quotients.push_back(as_float(sum) * factor);
  }
  return {stored(attributes, std::move(y), quotients)};
}

// By pools of numbers from 0 on: a norm of order 1 is a sum, of ones the count of taps inside.
std::vector<Array> quantized_average_pool(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  const double sign = x.dtype == DType::i8 ? 128 : 0;
  x.dtype = DType::f32;
  for (double& code : x.values) code += sign;
  Array ones = x;
  std::ranges::fill(ones.values, 1);
  AttributeList norm = attributes;
  norm.emplace_back("p", std::int64_t{1});
  Array y = run("LpPool", norm, std::vector<Array>{x})->at(0);
  const Array inside = run("LpPool", norm, std::vector<Array>{ones})->at(0);
  const Array share = run("AveragePool", attributes, std::vector<Array>{ones})->at(0);
  const Codes of_x = codes_of(attributes, "x"), of_y = codes_of(attributes, "y");
  std::vector<float> quotients;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double count = share.values[i] == 0 ? 1 : std::nearbyint(inside.values[i] / share.values[i]);
    const float factor = as_float(static_cast<double>(of_x.scale) / of_y.scale / count);
    quotients.push_back(as_float(y.values[i] - inside.values[i] * (of_x.zero_point + sign)) * factor);
  }
  y.scale.clear();
  return {stored(attributes, std::move(y), quotients)};
}

constexpr Entry entries[] = {{"MatMulInteger", matmul_integer},
                             {"QLinearMatMul", qlinear_matmul},
                             {"ConvInteger", conv_integer},
                             {"QLinearConv", qlinear_conv},
                             {"QuantizedAdd", quantized_binary<false>},
                             {"QuantizedMul", quantized_binary<true>},
                             {"QuantizedTable", quantized_table},
                             {"QuantizedAveragePool", quantized_average_pool},
                             {"QuantizedGlobalAveragePool", quantized_global_average_pool}};

}  // namespace

std::span<const Entry> quantized_entries() { return entries; }

Array requantized(const AttributeList& attributes, Array sums, int channel_axis) {
  const std::vector<double> by_channel = reals(attributes, "multipliers");
  std::vector<float> multipliers;
  for (std::size_t i = 0; i < sums.values.size(); ++i) {
    const auto channel = index_of(sums.shape, static_cast<std::int64_t>(i))[static_cast<std::size_t>(channel_axis)];
    multipliers.push_back(as_float(by_channel.at(static_cast<std::size_t>(channel))));
  }
  Array zero = zeros({}, text(attributes, "stored_type", "uint8") == "int8" ? DType::i8 : DType::u8);
  zero.values = {static_cast<double>(integer(attributes, "zero_point", 0))};
  Array y = requantize(std::move(sums), multipliers, zero);
  const std::vector<std::int64_t> range = integers(attributes, "stored_range", {-128, 255});
  for (double& code : y.values)
    code = std::clamp(code, static_cast<double>(range.at(0)), static_cast<double>(range.at(1)));
  y.scale.clear();
  return y;
}

}  // namespace lenslet::oracle
