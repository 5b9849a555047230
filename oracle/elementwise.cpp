// References of elementwise operators: one value at a time, as the ONNX specification defines them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

Array map(const Array& x, const std::function<double(double)>& f) {
  Array y = x;
  for (double& value : y.values) value = f(value);
  return y;
}

// For functions with rounded intermediate results.
Array map_scaled(const Array& x, const std::function<Scaled(double)>& f) {
  Array y = sums(x.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) put(y, i, f(x.values[i]));
  return y;
}

template <double (*f)(double)>
std::vector<Array> plain(const AttributeList&, Inputs inputs) {
  return {map(at(inputs, 0), f)};
}

double relu_of(double x) { return x < 0 ? 0 : x; }
double abs_of(double x) { return x < 0 ? -x : x; }
double neg_of(double x) { return x == 0 ? -x : 0 - x; }
double exp_of(double x) { return std::exp(x); }
double log_of(double x) { return std::log(x); }
double sqrt_of(double x) { return std::sqrt(x); }
double reciprocal_of(double x) { return 1 / x; }
double floor_of(double x) { return std::floor(x); }
double ceil_of(double x) { return std::ceil(x); }
double erf_of(double x) { return std::erf(x); }
double sin_of(double x) { return std::sin(x); }
double cos_of(double x) { return std::cos(x); }
double tan_of(double x) { return std::tan(x); }
double asin_of(double x) { return std::asin(x); }
double acos_of(double x) { return std::acos(x); }
double atan_of(double x) { return std::atan(x); }
double sinh_of(double x) { return std::sinh(x); }
double cosh_of(double x) { return std::cosh(x); }
double asinh_of(double x) { return std::asinh(x); }
double acosh_of(double x) { return std::acosh(x); }
double atanh_of(double x) { return std::atanh(x); }
double softsign_of(double x) { return x / (1 + std::abs(x)); }
double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
// Rounds halves to even.
double round_of(double x) {
  const double down = std::floor(x), rest = x - down;
  if (rest == 0.5) return std::fmod(down, 2) == 0 ? down : down + 1;
  return rest < 0.5 ? down : down + 1;
}
double tanh_of(double x) { return std::tanh(x); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double silu_of(double x) { return x * sigmoid_of(x); }
double softplus_of(double x) { return x > 700 ? x : std::log1p(std::exp(x)); }
double mish_of(double x) { return x * std::tanh(softplus_of(x)); }
double unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
Scaled hard_sigmoid_of(double alpha, double x, double beta) {
  Sum line;
  line.add(alpha * x);
  line.add(beta);
  return through(unit, line.value, line.scale());
}

std::vector<Array> hard_sigmoid(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 0.2), beta = real(attributes, "beta", 0.5);
  return {map_scaled(at(inputs, 0), [=](double x) { return hard_sigmoid_of(alpha, x, beta); })};
}

std::vector<Array> hard_swish(const AttributeList&, Inputs inputs) {
  return {map_scaled(at(inputs, 0), [](double x) {
    const Scaled gate = hard_sigmoid_of(1.0 / 6, x, 0.5);
    return Scaled{x * gate.value, std::fabs(x) * gate.scale};
  })};
}

std::vector<Array> leaky_relu(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 0.01);
  return {map(at(inputs, 0), [=](double x) { return x < 0 ? alpha * x : x; })};
}

/// alpha max(0, x)^power + beta.
std::vector<Array> affine_of_relu(const AttributeList& attributes, Inputs inputs, int power) {
  const double alpha = real(attributes, "alpha", 1), beta = real(attributes, "beta", 0);
  return {map_scaled(at(inputs, 0), [=](double x) {
    Sum sum;
    if (!(x < 0)) sum.add(power == 1 ? alpha * x : alpha * x * x);
    sum.add(beta);
    return Scaled{sum.value, sum.scale()};
  })};
}
std::vector<Array> affine_relu(const AttributeList& attributes, Inputs inputs) {
  return affine_of_relu(attributes, inputs, 1);
}
std::vector<Array> star_relu(const AttributeList& attributes, Inputs inputs) {
  return affine_of_relu(attributes, inputs, 2);
}

std::vector<Array> celu(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 1);
  return {map_scaled(at(inputs, 0), [=](double x) {
    const double ratio = x / alpha;
    const auto negative = [=](double r) {
      const double low = alpha * std::expm1(r);
      return low > 0 ? 0 : low;
    };
    const Scaled low = through(negative, ratio, ratio);
    const double value = (x < 0 ? 0 : x) + low.value;
    return Scaled{value, std::max(std::fabs(value), low.scale)};
  })};
}

std::vector<Array> shrink(const AttributeList& attributes, Inputs inputs) {
  const double lambda = real(attributes, "lambd", 0.5), bias = real(attributes, "bias", 0);
  return {map(at(inputs, 0), [=](double x) { return x < -lambda ? x + bias : x > lambda ? x - bias : 0; })};
}

std::vector<Array> swish(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 1);
  return {map_scaled(at(inputs, 0), [=](double x) {
    const Scaled gate = through(sigmoid_of, alpha * x, std::fabs(alpha * x));
    return Scaled{x * gate.value, std::fabs(x) * gate.scale};
  })};
}

std::vector<Array> swiglu(const AttributeList& attributes, Inputs inputs) {
  Array y = std::move(swish(attributes, inputs)[0]);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    y.values[i] *= at(inputs, 1).values[i];
    y.scale[i] *= std::fabs(at(inputs, 1).values[i]);
  }
  return {y};
}

std::vector<Array> thresholded_relu(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 1);
  return {map(at(inputs, 0), [=](double x) { return x > alpha ? x : 0; })};
}

std::vector<Array> elu(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 1);
  return {map(at(inputs, 0), [=](double x) { return x < 0 ? alpha * std::expm1(x) : x; })};
}

std::vector<Array> selu(const AttributeList& attributes, Inputs inputs) {
  const double alpha = real(attributes, "alpha", 1.67326319217681884765625);
  const double gamma = real(attributes, "gamma", 1.05070102214813232421875);
  return {map(at(inputs, 0), [=](double x) { return gamma * (x <= 0 ? alpha * std::expm1(x) : x); })};
}

std::vector<Array> gelu(const AttributeList& attributes, Inputs inputs) {
  const bool tanh = text(attributes, "approximate", "none") == "tanh";
  return {map_scaled(at(inputs, 0), [=](double x) {
    Sum sum;
    sum.add(1);
    sum.add(tanh ? std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))
                 : std::erf(x / std::numbers::sqrt2));
    return Scaled{0.5 * x * sum.value, 0.5 * std::fabs(x) * sum.scale()};
  })};
}

std::vector<Array> clip(const AttributeList& attributes, Inputs inputs) {
  double low = real(attributes, "min", -std::numeric_limits<double>::infinity());
  double high = real(attributes, "max", std::numeric_limits<double>::infinity());
  if (has(inputs, 1)) low = at(inputs, 1).values.at(0);
  if (has(inputs, 2)) high = at(inputs, 2).values.at(0);
  return {map(at(inputs, 0), [=](double x) {
    const double raised = x < low ? low : x;
    return raised > high ? high : raised;
  })};
}

// Element of a broadcast operand at `index` of the result.
double repeated(const Array& array, const Index& index) {
  const std::size_t skip = index.size() - static_cast<std::size_t>(array.shape.rank());
  std::int64_t flat = 0;
  for (int d = 0; d < array.shape.rank(); ++d)
    flat = flat * array.shape[d] + (array.shape[d] == 1 ? 0 : index[skip + static_cast<std::size_t>(d)]);
  return array.values[static_cast<std::size_t>(flat)];
}

Shape common_shape(Inputs inputs) {
  std::vector<std::int64_t> dims;
  for (const Array& array : inputs) {
    const auto rank = static_cast<std::size_t>(array.shape.rank());
    if (rank > dims.size()) dims.insert(dims.begin(), rank - dims.size(), 1);
    for (std::size_t i = 0; i < rank; ++i) {
      std::int64_t& dim = dims[dims.size() - rank + i];
      const std::int64_t own = array.shape[static_cast<int>(i)];
      if (dim != own && dim != 1 && own != 1)
        throw Error(ErrorKind::invalid_argument, "oracle: shapes that do not broadcast");
      if (dim == 1) dim = own;
    }
  }
  return Shape(dims);
}

// The result at each index is f(one value of each input): a number or a Sum.
template <typename F>
Array combine(Inputs inputs, DType dtype, const F& f) {
  constexpr bool scaled = std::is_same_v<std::invoke_result_t<F, const std::vector<double>&>, Sum>;
  const Shape shape = common_shape(inputs);
  Array y = scaled ? sums(shape, dtype) : zeros(shape, dtype);
  std::vector<double> values(inputs.size());
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Index index = index_of(y.shape, static_cast<std::int64_t>(i));
    for (std::size_t k = 0; k < inputs.size(); ++k) values[k] = repeated(inputs[k], index);
    if constexpr (scaled)
      put(y, i, f(values));
    else
      y.values[i] = f(values);
  }
  return y;
}

template <double (*f)(double, double)>
std::vector<Array> binary(const AttributeList&, Inputs inputs) {
  const DType dtype = at(inputs, 0).dtype;
  return {combine(inputs.first(2), dtype, [](const auto& v) { return f(v[0], v[1]); })};
}

double add_of(double a, double b) { return a + b; }
double sub_of(double a, double b) { return a - b; }
double mul_of(double a, double b) { return a * b; }

std::vector<Array> div(const AttributeList&, Inputs inputs) {
  const DType dtype = at(inputs, 0).dtype;
  const bool whole = is_integer(dtype);
  return {combine(inputs.first(2), dtype, [=](const auto& v) {
    const double quotient = v[0] / v[1];
    return whole ? std::trunc(quotient) : quotient;
  })};
}

std::vector<Array> pow(const AttributeList&, Inputs inputs) {
  const DType dtype = at(inputs, 0).dtype;
  const bool whole = is_integer(dtype);
  return {combine(inputs.first(2), dtype, [=](const auto& v) {
    const double power = std::pow(v[0], v[1]);
    return whole ? std::trunc(power) : power;
  })};
}

template <bool max>
std::vector<Array> extreme(const AttributeList&, Inputs inputs) {
  return {combine(inputs, at(inputs, 0).dtype, [](const std::vector<double>& v) {
    double result = v[0];
    for (std::size_t i = 1; i < v.size(); ++i) {
      if (std::isnan(result)) break;
      if (std::isnan(v[i]) || (max ? v[i] > result : v[i] < result)) result = v[i];
    }
    return result;
  })};
}

template <bool mean>
std::vector<Array> sum_of(const AttributeList&, Inputs inputs) {
  return {combine(inputs, at(inputs, 0).dtype, [](const std::vector<double>& v) {
    Sum sum;
    for (const double value : v) sum.add(value);
    const auto count = mean ? static_cast<double>(v.size()) : 1;
    return Sum{sum.value / count, sum.squares / (count * count)};
  })};
}

template <bool (*f)(double, double)>
std::vector<Array> predicate(const AttributeList&, Inputs inputs) {
  return {combine(inputs.first(2), DType::boolean, [](const auto& v) { return f(v[0], v[1]) ? 1.0 : 0.0; })};
}

bool equal_of(double a, double b) { return a == b; }
bool less_of(double a, double b) { return a < b; }
bool less_equal_of(double a, double b) { return a <= b; }
bool greater_of(double a, double b) { return a > b; }
bool greater_equal_of(double a, double b) { return a >= b; }
bool and_of(double a, double b) { return a != 0 && b != 0; }
bool or_of(double a, double b) { return a != 0 || b != 0; }
bool xor_of(double a, double b) { return (a != 0) != (b != 0); }
double not_of(double a) { return a == 0 ? 1 : 0; }

std::vector<Array> where(const AttributeList&, Inputs inputs) {
  return {combine(inputs.first(3), at(inputs, 1).dtype, [](const auto& v) { return v[0] != 0 ? v[1] : v[2]; })};
}

// The remainder has the sign of b, or of a with fmod.
std::vector<Array> mod(const AttributeList& attributes, Inputs inputs) {
  const bool truncated = integer(attributes, "fmod", 0) != 0;
  return {combine(inputs.first(2), at(inputs, 0).dtype, [=](const auto& v) {
    const double rest = std::fmod(v[0], v[1]);
    return truncated || rest == 0 || (rest < 0) == (v[1] < 0) ? rest : rest + v[1];
  })};
}

// Bitwise on two's complement.
template <std::uint64_t (*f)(std::uint64_t, std::uint64_t)>
std::vector<Array> bitwise(const AttributeList&, Inputs inputs) {
  const DType dtype = at(inputs, 0).dtype;
  const IntegerType type = integer_type(dtype);
  return {combine(inputs.first(std::min<std::size_t>(inputs.size(), 2)), dtype, [=](const auto& v) {
    const auto bits = [](double value) {
      return value < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(value))
                       : static_cast<std::uint64_t>(value);
    };
    const int unused = 64 - type.bits;  // copies of the sign, or zeros
    const std::uint64_t result = f(bits(v[0]), v.size() > 1 ? bits(v[1]) : 0) << unused;
    return type.is_signed ? static_cast<double>(static_cast<std::int64_t>(result) >> unused)
                          : static_cast<double>(result >> unused);
  })};
}

std::uint64_t both(std::uint64_t a, std::uint64_t b) { return a & b; }
std::uint64_t either(std::uint64_t a, std::uint64_t b) { return a | b; }
std::uint64_t one_of(std::uint64_t a, std::uint64_t b) { return a ^ b; }
std::uint64_t neither(std::uint64_t a, std::uint64_t) { return ~a; }

std::vector<Array> bit_shift(const AttributeList& attributes, Inputs inputs) {
  const bool left = text(attributes, "direction", "") == "LEFT";
  const DType dtype = at(inputs, 0).dtype;
  const IntegerType type = integer_type(dtype);
  return {combine(inputs.first(2), dtype, [=](const auto& v) {
    if (v[1] < 0 || v[1] >= type.bits) return !left && v[0] < 0 ? -1.0 : 0.0;
    if (!left) return std::floor(v[0] / std::exp2(v[1]));
    const double values = std::ldexp(1.0, type.bits), rest = std::fmod(v[0] * std::exp2(v[1]), values);
    const double from_zero = rest < 0 ? rest + values : rest;
    return type.is_signed && from_zero >= values / 2 ? from_zero - values : from_zero;
  })};
}

std::vector<Array> is_nan(const AttributeList&, Inputs inputs) {
  return {combine(inputs.first(1), DType::boolean, [](const auto& v) { return std::isnan(v[0]) ? 1.0 : 0.0; })};
}

std::vector<Array> is_inf(const AttributeList& attributes, Inputs inputs) {
  const bool negative = integer(attributes, "detect_negative", 1) != 0;
  const bool positive = integer(attributes, "detect_positive", 1) != 0;
  return {combine(inputs.first(1), DType::boolean,
                  [=](const auto& v) { return std::isinf(v[0]) && (v[0] > 0 ? positive : negative) ? 1.0 : 0.0; })};
}

// The parameter of an element: one for all, one for each position along the axis, or one for each block.
double parameter(const AttributeList& attributes, const Array& x, const Array& values, std::size_t element) {
  if (values.values.size() == 1) return values.values[0];
  std::int64_t axis = integer(attributes, "axis", 1);
  if (axis < 0) axis += x.shape.rank();
  Index index = index_of(x.shape, static_cast<std::int64_t>(element));
  if (const std::int64_t block = integer(attributes, "block_size", 0); block != 0) {
    index[static_cast<std::size_t>(axis)] /= block;
    return values.values[static_cast<std::size_t>(flat_of(values.shape, index))];
  }
  return values.values[static_cast<std::size_t>(index[static_cast<std::size_t>(axis)])];
}

// The specification defines the quotient in float.
std::vector<Array> quantize(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &scale = at(inputs, 1);
  Array y = x;
  y.dtype = has(inputs, 2) ? at(inputs, 2).dtype : dtype_of_number(integer(attributes, "output_dtype", 2));
  const IntegerType type = integer_type(y.dtype);
  const double steps = std::ldexp(1.0, type.bits), low = type.is_signed ? -steps / 2 : 0, high = low + steps - 1;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto quotient = static_cast<float>(x.values[i]) / static_cast<float>(parameter(attributes, x, scale, i));
    const double zero = has(inputs, 2) ? parameter(attributes, x, at(inputs, 2), i) : 0;
    if (is_small_float(y.dtype)) {
      const auto sum = static_cast<float>(static_cast<double>(quotient) + zero);
      y.values[i] =
          round_small(has(inputs, 2) ? sum : quotient, y.dtype, integer(attributes, "saturate", 1) != 0, "up");
      continue;
    }
    const double value = round_of(quotient) + zero;
    y.values[i] = std::isnan(value) ? 0 : std::clamp(value, low, high);
  }
  return {y};
}

std::vector<Array> dequantize(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  Array y = sums(x.shape, DType::f32);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const double scale = parameter(attributes, x, at(inputs, 1), i);
    Sum sum;
    sum.add(x.values[i] * scale);
    if (has(inputs, 2)) sum.add(-parameter(attributes, x, at(inputs, 2), i) * scale);
    put(y, i, sum);
  }
  return {y};
}

double prelu_of(double x, double slope) { return x < 0 ? slope * x : x; }

// Functions in a row. Their roundings are relative to their arguments, x among them, and the later ones carry them on.
std::vector<Array> chain(const AttributeList& attributes, Inputs inputs) {
  struct Named {
    std::string_view name;
    double (*f)(double);
  };
  struct NamedOfTwo {
    std::string_view name;
    double (*f)(double, double);
  };
  constexpr Named of_one[] = {{"Square", [](double x) { return x * x; }},
                              {"Tanh", tanh_of},
                              {"Abs", abs_of},
                              {"Neg", neg_of},
                              {"Exp", exp_of},
                              {"Sqrt", sqrt_of},
                              {"Reciprocal", reciprocal_of},
                              {"Erf", erf_of},
                              {"Softplus", softplus_of}};
  const auto larger = [](double a, double b) { return std::isnan(a) || a > b ? a : b; };
  const auto smaller = [](double a, double b) { return std::isnan(a) || a < b ? a : b; };
  const NamedOfTwo of_two[] = {
      {"Add", add_of}, {"Sub", sub_of},  {"Mul", mul_of},    {"Div", [](double a, double b) { return a / b; }},
      {"Max", larger}, {"Min", smaller}, {"PRelu", prelu_of}};
  const Array& x = at(inputs, 0);
  Array y = sums(x.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) put(y, i, Scaled{x.values[i], std::fabs(x.values[i])});
  std::istringstream names(text(attributes, "functions", ""));
  const std::vector<double> a = reals(attributes, "a"), b = reals(attributes, "b");
  const std::vector<std::int64_t> taken = integers(attributes, "inputs"), reversed = integers(attributes, "reversed");
  std::size_t next = 1, f = 0;
  for (std::string name; std::getline(names, name, '+'); next += static_cast<std::size_t>(taken.at(f++))) {
    const auto one = std::find_if(std::begin(of_one), std::end(of_one), [&](const Named& n) { return n.name == name; });
    const auto two =
        std::find_if(std::begin(of_two), std::end(of_two), [&](const NamedOfTwo& n) { return n.name == name; });
    std::function<double(double)> alone;
    if (one != std::end(of_one))
      alone = one->f;
    else if (two == std::end(of_two) && name != "ScaleShift")
      alone = fused_activation({{"activation", name}, {"activation_alpha", a.at(f)}, {"activation_beta", b.at(f)}});
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      const Index index = index_of(y.shape, static_cast<std::int64_t>(i));
      const double first = taken.at(f) == 0 ? a.at(f) : repeated(at(inputs, next), index);
      const double second = taken.at(f) < 2 ? 0 : repeated(at(inputs, next + 1), index);
      put(y, i,
          through(
              [&](double v) {
                if (alone) return alone(v);
                if (name == "ScaleShift") return v * first + second;
                return reversed.at(f) != 0 ? two->f(first, v) : two->f(v, first);
              },
              y.values[i], y.scale[i]));
    }
  }
  return {y};
}

constexpr Entry entries[] = {
    {"Relu", plain<relu_of>},
    {"LeakyRelu", leaky_relu},
    {"PRelu", binary<prelu_of>},
    {"Clip", clip},
    {"Sigmoid", plain<sigmoid_of>},
    {"SiLU", plain<silu_of>},
    {"AffineRelu", affine_relu},
    {"StarRelu", star_relu},
    {"Tanh", plain<tanh_of>},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", hard_swish},
    {"Elu", elu},
    {"Selu", selu},
    {"Softplus", plain<softplus_of>},
    {"Mish", plain<mish_of>},
    {"Gelu", gelu},
    {"Abs", plain<abs_of>},
    {"Neg", plain<neg_of>},
    {"Exp", plain<exp_of>},
    {"Log", plain<log_of>},
    {"Sqrt", plain<sqrt_of>},
    {"Reciprocal", plain<reciprocal_of>},
    {"Floor", plain<floor_of>},
    {"Ceil", plain<ceil_of>},
    {"Erf", plain<erf_of>},
    {"Swish", swish},
    {"SwiGLU", swiglu},
    {"Celu", celu},
    {"Softsign", plain<softsign_of>},
    {"ThresholdedRelu", thresholded_relu},
    {"Shrink", shrink},
    {"Sign", plain<sign_of>},
    {"Round", plain<round_of>},
    {"Sin", plain<sin_of>},
    {"Cos", plain<cos_of>},
    {"Tan", plain<tan_of>},
    {"Asin", plain<asin_of>},
    {"Acos", plain<acos_of>},
    {"Atan", plain<atan_of>},
    {"Sinh", plain<sinh_of>},
    {"Cosh", plain<cosh_of>},
    {"Asinh", plain<asinh_of>},
    {"Acosh", plain<acosh_of>},
    {"Atanh", plain<atanh_of>},
    {"Not", plain<not_of>},
    {"ElementwiseChain", chain},
    {"Add", binary<add_of>},
    {"Sub", binary<sub_of>},
    {"Mul", binary<mul_of>},
    {"Div", div},
    {"Pow", pow},
    {"Max", extreme<true>},
    {"Min", extreme<false>},
    {"Sum", sum_of<false>},
    {"Mean", sum_of<true>},
    {"Equal", predicate<equal_of>},
    {"Less", predicate<less_of>},
    {"LessOrEqual", predicate<less_equal_of>},
    {"Greater", predicate<greater_of>},
    {"GreaterOrEqual", predicate<greater_equal_of>},
    {"And", predicate<and_of>},
    {"Or", predicate<or_of>},
    {"Xor", predicate<xor_of>},
    {"Where", where},
    {"Mod", mod},
    {"QuantizeLinear", quantize},
    {"DequantizeLinear", dequantize},
    {"BitShift", bit_shift},
    {"BitwiseAnd", bitwise<both>},
    {"BitwiseOr", bitwise<either>},
    {"BitwiseXor", bitwise<one_of>},
    {"BitwiseNot", bitwise<neither>},
    {"IsNaN", is_nan},
    {"IsInf", is_inf},
};

}  // namespace

std::span<const Entry> elementwise_entries() { return entries; }

}  // namespace lenslet::oracle
