// References of reductions and of operators that produce shapes, constants and types.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

using Values = std::vector<double>;

// Calls f(the input elements of an output element, in the order of their index) for each one.
std::vector<Array> over_axes(const Array& x, const std::vector<bool>& reduced, bool keep_dims, DType dtype,
                             const std::function<Scaled(const Values&)>& f) {
  std::vector<std::int64_t> kept_dims, out_dims;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const bool gone = reduced[static_cast<std::size_t>(i)];
    kept_dims.push_back(gone ? 1 : x.shape[i]);
    if (!gone || keep_dims) out_dims.push_back(kept_dims.back());
  }
  const Shape kept(kept_dims);
  std::vector<Values> groups(static_cast<std::size_t>(kept.elems()));
  for (std::int64_t i = 0; i < x.shape.elems(); ++i) {
    Index index = index_of(x.shape, i);
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      if (reduced[axis]) index[axis] = 0;
    groups[static_cast<std::size_t>(flat_of(kept, index))].push_back(x.values[static_cast<std::size_t>(i)]);
  }
  Array y = sums(Shape(out_dims), dtype);
  for (std::size_t i = 0; i < groups.size(); ++i) put(y, i, f(groups[i]));
  return {y};
}

double lowest(DType dtype) {
  const IntegerType type = integer_type(dtype);
  return dtype == DType::boolean || !type.is_signed ? 0 : -std::ldexp(1.0, type.bits - 1);
}
double highest(DType dtype) {
  const IntegerType type = integer_type(dtype);
  return dtype == DType::boolean ? 1 : std::ldexp(1.0, type.is_signed ? type.bits - 1 : type.bits) - 1;
}

template <auto f>
std::vector<Array> reduce(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const auto rank = static_cast<std::size_t>(x.shape.rank());
  std::vector<std::int64_t> axes = integers(attributes, "axes");
  if (!has(attributes, "axes") && has(inputs, 1)) axes = as_integers(inputs[1]);
  std::vector<bool> reduced(rank, axes.empty() && integer(attributes, "noop_with_empty_axes", 0) == 0);
  for (const std::int64_t axis : axes) reduced[static_cast<std::size_t>(axis_of(axis, x.shape.rank()))] = true;
  std::vector<Array> y =
      over_axes(x, reduced, integer(attributes, "keepdims", 1) != 0, x.dtype, [](const Values& values) {
        if constexpr (std::is_same_v<decltype(f(values)), Scaled>)
          return f(values);
        else
          return Scaled{f(values), 0};
      });
  if (is_integer(x.dtype))
    for (double& value : y.front().values)  // the extreme of an empty set is the type's own limit
      value = std::clamp(std::trunc(value), lowest(x.dtype), highest(x.dtype));
  return y;
}

Scaled sum(const Values& values) {
  Sum total;
  for (const double value : values) total.add(value);
  return {total.value, total.scale()};
}
Scaled mean(const Values& values) {
  const Scaled total = sum(values);
  const auto count = static_cast<double>(values.size());
  return {total.value / count, total.scale / count};
}
// The first NaN, as in NumPy; without one the first element that is `better` than all before it.
std::size_t extreme_at(const Values& values, bool (*better)(double, double), bool last) {
  std::size_t where = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double x = values[i], best = values[where];
    const bool equal = x == best || (std::isnan(x) && std::isnan(best));
    const bool wins = !std::isnan(best) && (std::isnan(x) || better(x, best));
    if (wins || (last && equal)) where = i;
  }
  return where;
}
bool above(double a, double b) { return a > b; }
bool below(double a, double b) { return a < b; }
double greatest(const Values& values) {
  return values.empty() ? -std::numeric_limits<double>::infinity() : values[extreme_at(values, above, false)];
}
double least(const Values& values) {
  return values.empty() ? std::numeric_limits<double>::infinity() : values[extreme_at(values, below, false)];
}
double product(const Values& values) {
  double total = 1;
  for (const double value : values) total *= value;
  return total;
}
double sum_square(const Values& values) {
  double total = 0;
  for (const double value : values) total += value * value;
  return total;
}
double l1(const Values& values) {
  double total = 0;
  for (const double value : values) total += std::abs(value);
  return total;
}
double l2(const Values& values) { return std::sqrt(sum_square(values)); }
// The sum's error is relative to the sum; its logarithm's error is absolute.
Scaled log_sum(const Values& values) {
  const Scaled total = sum(values);
  const double value = std::log(total.value);
  return {value, std::max(std::fabs(value), total.scale / total.value)};
}
Scaled log_sum_exp(const Values& values) {
  const double most = greatest(values);
  if (std::isinf(most)) return {most, 0};  // avoids inf - inf; there is no NaN here
  double total = 0;
  for (const double value : values) total += std::exp(value - most);
  return {std::log(total) + most, std::hypot(std::log(total), most, 1)};
}

template <bool largest>
std::vector<Array> arg_extreme(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  std::vector<bool> reduced(static_cast<std::size_t>(x.shape.rank()), false);
  reduced[static_cast<std::size_t>(axis_of(integer(attributes, "axis", 0), x.shape.rank()))] = true;
  const bool last = integer(attributes, "select_last_index", 0) != 0;
  return over_axes(x, reduced, integer(attributes, "keepdims", 1) != 0, DType::i64, [last](const Values& values) {
    return Scaled{static_cast<double>(extreme_at(values, largest ? above : below, last)), 0};
  });
}

// Calls f(elements in order, their offsets) for each line along `axis`.
void for_each_line(const Array& x, int axis,
                   const std::function<void(const Values&, const std::vector<std::size_t>&)>& f) {
  for (std::int64_t i = 0; i < x.shape.elems(); ++i) {
    Index index = index_of(x.shape, i);
    std::int64_t& along = index[static_cast<std::size_t>(axis)];
    if (along != 0) continue;
    Values values;
    std::vector<std::size_t> places;
    for (; along < x.shape[axis]; ++along) {
      places.push_back(static_cast<std::size_t>(flat_of(x.shape, index)));
      values.push_back(x.values[places.back()]);
    }
    f(values, places);
  }
}

template <bool product>
std::vector<Array> cumulative(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const bool exclusive = integer(attributes, "exclusive", 0) != 0, reverse = integer(attributes, "reverse", 0) != 0;
  Array y = sums(x.shape, x.dtype);
  for_each_line(x, axis_of(as_integers(at(inputs, 1)).at(0), x.shape.rank()), [&](Values values, auto places) {
    if (reverse) {
      std::ranges::reverse(values);
      std::ranges::reverse(places);
    }
    Sum total{product ? 1.0 : 0.0, 0};
    for (std::size_t i = 0; i < values.size(); ++i) {
      Sum with = total;
      if (product)
        with.value *= values[i];
      else
        with.add(values[i]);
      put(y, places[i], exclusive ? total : with);
      total = with;
    }
  });
  return {y};
}

// By Givens rotations, whose determinant is 1; the kernel eliminates. In double both err by some n roundings of each
// row, hence by n^2 of Hadamard's bound, the product of the rows' norms. The tolerance's 2^-24 of 2^-29 is 2^-53.
std::vector<Array> det(const AttributeList&, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const auto dims = x.shape.dims();
  const auto n = static_cast<std::size_t>(dims.back());
  Array y = sums(Shape(std::vector<std::int64_t>(dims.begin(), dims.end() - 2)), x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto first = x.values.begin() + static_cast<std::ptrdiff_t>(i * n * n);
    Values a(first, first + static_cast<std::ptrdiff_t>(n * n));
    double value = 1, bound = 1, not_finite = 0;  // NaN where an element is NaN or infinite
    for (const double element : a) not_finite += 0 * element;
    for (std::size_t row = 0; row < n; ++row) {
      double squares = 0;
      for (std::size_t k = 0; k < n; ++k) squares += a[row * n + k] * a[row * n + k];
      bound *= std::sqrt(squares);
    }
    for (std::size_t column = 0; column < n; ++column) {
      double* const top = &a[column * n];
      for (std::size_t row = column + 1; row < n; ++row) {
        double* const other = &a[row * n];
        const double norm = std::hypot(top[column], other[column]);
        if (norm == 0) continue;
        const double c = top[column] / norm, s = other[column] / norm;
        for (std::size_t k = column; k < n; ++k) {
          const double upper = top[k], lower = other[k];
          top[k] = c * upper + s * lower;
          other[k] = c * lower - s * upper;
        }
      }
      value *= top[column];
    }
    const auto roundings = static_cast<double>(4 * n * n);
    put(y, i, Scaled{value + not_finite, std::fabs(value) + roundings * 0x1p-29 * bound});
  }
  return {y};
}

std::vector<Array> top_k(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const int axis = axis_of(integer(attributes, "axis", -1), x.shape.rank());
  const std::int64_t k = has(attributes, "k") ? integer(attributes, "k", 0) : as_integers(at(inputs, 1)).at(0);
  const auto better = integer(attributes, "largest", 1) != 0 ? above : below;
  Array y = zeros(x.shape.with(axis, k), x.dtype), where = zeros(y.shape, DType::i64);
  for_each_line(x, axis, [&](const Values& values, const std::vector<std::size_t>& places) {
    // NaN comes first, as in extreme_at(); equal elements keep their order.
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
      return !std::isnan(values[b]) && (std::isnan(values[a]) ? true : better(values[a], values[b]));
    });
    for (std::int64_t rank = 0; rank < k; ++rank) {
      const std::size_t taken = order.at(static_cast<std::size_t>(rank));
      Index index = index_of(x.shape, static_cast<std::int64_t>(places[taken]));
      index[static_cast<std::size_t>(axis)] = rank;
      const auto to = static_cast<std::size_t>(flat_of(y.shape, index));
      y.values[to] = values[taken];
      where.values[to] = static_cast<double>(taken);
    }
  });
  return {y, where};
}

std::vector<Array> hardmax(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  const Shape shape = x.shape;
  std::int64_t axis = integer(attributes, "axis", -1);
  if (integer(attributes, "flatten", 0) != 0) {
    if (axis < 0) axis += shape.rank();
    std::int64_t rows = 1, columns = 1;
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? rows : columns) *= shape[i];
    x.shape = Shape{rows, columns};
    axis = 1;
  }
  Array y = zeros(x.shape, x.dtype);
  for_each_line(x, axis_of(axis, x.shape.rank()), [&](const Values& values, const std::vector<std::size_t>& places) {
    y.values[places[extreme_at(values, above, false)]] = 1;
  });
  y.shape = shape;
  return {y};
}

std::vector<Array> shape(const AttributeList& attributes, Inputs inputs) {
  const Shape& s = at(inputs, 0).shape;
  const auto position = [&s](std::int64_t axis) {
    return std::clamp<std::int64_t>(axis < 0 ? axis + s.rank() : axis, 0, s.rank());
  };
  const std::int64_t start = position(integer(attributes, "start", 0));
  const std::int64_t end = position(integer(attributes, "end", s.rank()));
  Array y = zeros(Shape{std::max<std::int64_t>(0, end - start)}, DType::i64);
  for (std::int64_t i = start; i < end; ++i)
    y.values[static_cast<std::size_t>(i - start)] = static_cast<double>(s[static_cast<int>(i)]);
  return {y};
}

std::vector<Array> size(const AttributeList&, Inputs inputs) {
  Array y = zeros(Shape{}, DType::i64);
  y.values[0] = static_cast<double>(at(inputs, 0).shape.elems());
  return {y};
}

Array value_of(const AttributeList& attributes) {
  for (const auto& [name, value] : attributes)
    if (const auto* tensor = std::get_if<Tensor>(&value); tensor != nullptr && name == "value")
      return from_tensor(*tensor);
  throw Error(ErrorKind::invalid_argument, "oracle: no attribute 'value'");
}

std::vector<Array> constant(const AttributeList& attributes, Inputs) { return {value_of(attributes)}; }

std::vector<Array> constant_of_shape(const AttributeList& attributes, Inputs inputs) {
  const Array value = value_of(attributes);
  Array y = zeros(Shape(as_integers(at(inputs, 0))), value.dtype);
  std::ranges::fill(y.values, value.values.at(0));
  return {y};
}

std::vector<Array> range(const AttributeList&, Inputs inputs) {
  const double start = at(inputs, 0).values.at(0), limit = at(inputs, 1).values.at(0);
  const double delta = at(inputs, 2).values.at(0);
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  Array y = sums(Shape{static_cast<std::int64_t>(count)}, at(inputs, 0).dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    Sum sum;
    sum.add(start);
    sum.add(static_cast<double>(i) * delta);
    put(y, i, sum);
  }
  return {y};
}

// Integers wrap modulo 2^bits. Floats are truncated and clamped; below 8 bits an int64 then wraps. NaN becomes 0.
double to_integer(double value, bool from_integer, IntegerType type) {
  if (std::isnan(value)) return 0;
  const double modulus = std::ldexp(1.0, type.bits);
  const double low = type.is_signed ? -modulus / 2 : 0.0, high = low + modulus - 1;
  if (type.bits < 8) {
    const double whole = value >= 0x1p63 ? -1 : std::max(std::trunc(value), -0x1p63);  // -1: all ones, as in 2^63 - 1
    const double rest = std::fmod(whole, modulus), wrapped = rest < 0 ? rest + modulus : rest;
    return wrapped > high ? wrapped - modulus : wrapped;
  }
  if (!from_integer) return std::clamp(std::trunc(value), low, high);
  double wrapped = std::fmod(value - low, modulus);
  if (wrapped < 0) wrapped += modulus;
  const bool fits = value >= low && value <= high;  // unchanged: a modulus of 2^64 would lose the low bits
  return fits ? value : wrapped + low;
}

std::vector<Array> eye_like(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const bool told = has(attributes, "dtype");
  Array y = zeros(x.shape, told ? dtype_of_number(integer(attributes, "dtype", 0)) : x.dtype);
  const std::int64_t k = integer(attributes, "k", 0);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto index = index_of(y.shape, static_cast<std::int64_t>(i));
    if (index[1] - index[0] == k) y.values[i] = 1;
  }
  return {y};
}

Array cast_to(DType dtype, const AttributeList& attributes, const Array& x) {
  const bool saturate = integer(attributes, "saturate", 1) != 0;
  const std::string mode = text(attributes, "round_mode", "up");
  Array y = x;
  if (dtype == x.dtype) return y;
  y.dtype = dtype;
  for (double& value : y.values) {
    if (y.dtype == DType::boolean)
      value = value != 0 ? 1 : 0;
    else if (is_integer(y.dtype))
      value = to_integer(value, is_integer(x.dtype), integer_type(y.dtype));
    else if (is_small_float(y.dtype))
      value = round_small(value, y.dtype, saturate, mode);
  }
  return from_tensor(to_tensor(y));
}

std::vector<Array> cast(const AttributeList& attributes, Inputs inputs) {
  return {cast_to(dtype_of_number(integer(attributes, "to", 0)), attributes, at(inputs, 0))};
}
std::vector<Array> cast_like(const AttributeList& attributes, Inputs inputs) {
  return {cast_to(at(inputs, 1).dtype, attributes, at(inputs, 0))};
}

// Reinterprets the elements' bytes.
std::vector<Array> bit_cast(const AttributeList& attributes, Inputs inputs) {
  const Tensor x = to_tensor(at(inputs, 0));
  Tensor y(dtype_of_number(integer(attributes, "to", 0)), x.shape());
  if (x.bytes() > 0) std::memcpy(y.data(), x.data(), x.bytes());
  return {from_tensor(y)};
}

constexpr Entry entries[] = {
    {"ReduceSum", reduce<sum>},
    {"ReduceMean", reduce<mean>},
    {"ReduceMax", reduce<greatest>},
    {"ReduceMin", reduce<least>},
    {"ReduceProd", reduce<product>},
    {"ReduceSumSquare", reduce<sum_square>},
    {"ReduceL1", reduce<l1>},
    {"ReduceL2", reduce<l2>},
    {"ReduceLogSum", reduce<log_sum>},
    {"ReduceLogSumExp", reduce<log_sum_exp>},
    {"ArgMax", arg_extreme<true>},
    {"ArgMin", arg_extreme<false>},
    {"Shape", shape},
    {"Size", size},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"Range", range},
    {"EyeLike", eye_like},
    {"CumSum", cumulative<false>},
    {"CumProd", cumulative<true>},
    {"Det", det},
    {"TopK", top_k},
    {"Hardmax", hardmax},
    {"Cast", cast},
    {"CastLike", cast_like},
    {"BitCast", bit_cast},
};

}  // namespace

std::span<const Entry> reduction_entries() { return entries; }

}  // namespace lenslet::oracle
