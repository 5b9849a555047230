// References of normalizations and softmax.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

// Channel of element `flat` of [N, C, ...].
std::size_t channel_of(const Shape& shape, std::size_t flat) {
  return static_cast<std::size_t>(index_of(shape, static_cast<std::int64_t>(flat))[1]);
}

std::vector<Array> batch_norm(const AttributeList& attributes, Inputs inputs) {
  const double epsilon = real(attributes, "epsilon", 1e-5);
  const auto &scale = at(inputs, 1).values, &bias = at(inputs, 2).values, &mean = at(inputs, 3).values,
             &var = at(inputs, 4).values;
  const Array& x = at(inputs, 0);
  const auto activation = fused_activation(attributes);
  Array y = sums(x.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const std::size_t c = channel_of(y.shape, i);
    const double factor = scale[c] / std::sqrt(var[c] + epsilon);
    Sum sum;
    sum.add(x.values[i] * factor);
    sum.add(-mean[c] * factor);
    sum.add(bias[c]);
    put(y, i, activation ? through(activation, sum.value, sum.scale()) : Scaled{sum.value, sum.scale()});
  }
  return {y};
}

struct Statistics {
  double mean = 0, inverse_deviation = 0, size = 0;  ///< size: root mean square of the values
};
// Statistics of `count` values, which are standardised in place: (value - mean) * inverse_deviation. The scale has two
// terms, the value itself and the mean, whose terms are as large as the values.
Statistics standardise(Array& y, std::size_t first, std::size_t count, double epsilon) {
  double* const values = y.values.data() + first;
  double sum = 0, squares = 0, of_size = 0;
  for (std::size_t i = 0; i < count; ++i) sum += values[i], of_size += values[i] * values[i];
  const double mean = sum / static_cast<double>(count), size = std::sqrt(of_size / static_cast<double>(count));
  for (std::size_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(count) + epsilon);
  for (std::size_t i = 0; i < count; ++i)
    put(y, first + i, Scaled{(values[i] - mean) * inverse, std::hypot(values[i], size) * inverse});
  return {mean, inverse, size};
}

// Sets element i to the standardised value times `factor` plus `bias` and `residual`, through `activation` if there is
// one.
void put_affine(Array& y, std::size_t i, double factor, double bias,
                const std::function<double(double)>& activation = nullptr, double residual = 0) {
  Sum sum;
  sum.add(y.values[i] * factor, y.scale[i] * factor);
  sum.add(bias);
  sum.add(residual);
  put(y, i, activation ? through(activation, sum.value, sum.scale()) : Scaled{sum.value, sum.scale()});
}

// A copy with space for a scale.
Array to_scale(const Array& x) {
  Array y = sums(x.shape, x.dtype);
  y.values = x.values;
  return y;
}

std::vector<Array> instance_norm(const AttributeList& attributes, Inputs inputs) {
  const double epsilon = real(attributes, "epsilon", 1e-5);
  const auto activation = fused_activation(attributes);
  Array y = to_scale(at(inputs, 0));
  const std::int64_t planes = y.shape[0] * y.shape[1];
  const std::size_t area = planes == 0 ? 0 : y.values.size() / static_cast<std::size_t>(planes);
  for (std::size_t first = 0; area > 0 && first < y.values.size(); first += area) {
    standardise(y, first, area, epsilon);
    const std::size_t c = channel_of(y.shape, first);
    for (std::size_t i = first; i < first + area; ++i)
      put_affine(y, i, at(inputs, 1).values[c], at(inputs, 2).values[c], activation);
  }
  return {y};
}

std::vector<Array> group_norm(const AttributeList& attributes, Inputs inputs) {
  const double epsilon = real(attributes, "epsilon", 1e-5);
  const auto groups = static_cast<std::size_t>(integer(attributes, "num_groups", 1));
  const bool of_group = integer(attributes, "affine_of_group", 0) != 0;
  const auto activation = fused_activation(attributes);
  Array y = to_scale(at(inputs, 0));
  const std::size_t per_group = static_cast<std::size_t>(y.shape[1]) / groups;
  const std::size_t rows = static_cast<std::size_t>(y.shape[0]) * groups;
  const std::size_t length = rows == 0 ? 0 : y.values.size() / rows;
  for (std::size_t row = 0; length > 0 && row < rows; ++row) standardise(y, row * length, length, epsilon);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const std::size_t c = channel_of(y.shape, i), k = of_group ? c / per_group : c;
    put_affine(y, i, at(inputs, 1).values[k], at(inputs, 2).values[k], activation);
  }
  return {y};
}

// Element of a broadcast parameter for element `i` of a shape.
double broadcast_to(const Array& parameter, const Shape& shape, std::size_t i) {
  const Index index = index_of(shape, static_cast<std::int64_t>(i));
  std::int64_t flat = 0;
  for (int d = 0; d < parameter.shape.rank(); ++d) {
    const auto own = static_cast<std::size_t>(shape.rank() - parameter.shape.rank() + d);
    flat = flat * parameter.shape[d] + (parameter.shape[d] == 1 ? 0 : index[own]);
  }
  return parameter.values[static_cast<std::size_t>(flat)];
}

std::vector<Array> rms_norm(const AttributeList& attributes, Inputs inputs) {
  const double epsilon = real(attributes, "epsilon", 1e-5);
  Array y = to_scale(at(inputs, 0));
  std::size_t length = 1;
  for (int d = axis_of(integer(attributes, "axis", -1), y.shape.rank()); d < y.shape.rank(); ++d)
    length *= static_cast<std::size_t>(y.shape[d]);
  for (std::size_t first = 0; first < y.values.size(); first += length) {
    double squares = 0;
    for (std::size_t i = 0; i < length; ++i) squares += y.values[first + i] * y.values[first + i];
    for (std::size_t i = first; i < first + length; ++i) {
      Sum sum;
      sum.add(y.values[i] * broadcast_to(at(inputs, 1), y.shape, i) /
              std::sqrt(squares / static_cast<double>(length) + epsilon));
      if (has(inputs, 3)) sum.add(inputs[3].values[i]);
      put(y, i, sum);
    }
  }
  return {y};
}

std::vector<Array> global_response_norm(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const double epsilon = real(attributes, "epsilon", 1e-6);
  const int axis = integer(attributes, "channels_last", 0) != 0 ? x.shape.rank() - 1 : 1;
  const auto channels = static_cast<std::size_t>(x.shape[axis]);
  const auto place = [&](std::size_t i) {  // image and channel
    const Index index = index_of(x.shape, static_cast<std::int64_t>(i));
    return std::pair(static_cast<std::size_t>(index[0]),
                     static_cast<std::size_t>(index[static_cast<std::size_t>(axis)]));
  };
  std::vector<double> squares(static_cast<std::size_t>(x.shape[0]) * channels);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto [image, c] = place(i);
    squares[image * channels + c] += x.values[i] * x.values[i];
  }
  std::vector<double> means(static_cast<std::size_t>(x.shape[0]));
  for (std::size_t i = 0; i < squares.size(); ++i)
    means[i / channels] += std::sqrt(squares[i]) / static_cast<double>(channels);
  Array y = sums(x.shape, x.dtype);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto [image, c] = place(i);
    const double response = std::sqrt(squares[image * channels + c]) / (means[image] + epsilon);
    Sum sum;
    sum.add(x.values[i]);
    sum.add(at(inputs, 1).values[c] * x.values[i] * response);
    sum.add(at(inputs, 2).values[c]);
    put(y, i, sum);
  }
  return {y};
}

// Calls f for each group of values that differ only in `axes`; f replaces them in place.
template <typename F>
Array of_axes(const Array& x, const std::vector<std::int64_t>& axes, const F& f) {
  std::vector<std::vector<std::size_t>> groups(x.values.size());
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    Index index = index_of(x.shape, static_cast<std::int64_t>(i));
    for (const std::int64_t axis : axes) index[static_cast<std::size_t>(axis_of(axis, x.shape.rank()))] = 0;
    groups[static_cast<std::size_t>(flat_of(x.shape, index))].push_back(i);
  }
  Array y = sums(x.shape, x.dtype);
  for (const auto& group : groups) {
    std::vector<Scaled> values;
    for (const std::size_t i : group) values.push_back({x.values[i], 0});
    f(values);
    for (std::size_t i = 0; i < group.size(); ++i) put(y, group[i], values[i]);
  }
  return y;
}

std::vector<Array> mean_variance(const AttributeList& attributes, Inputs inputs) {
  return {of_axes(at(inputs, 0), integers(attributes, "axes", {0, 2, 3}), [](std::vector<Scaled>& values) {
    double sum = 0, squares = 0, of_size = 0;
    for (const auto& [value, scale] : values) sum += value, of_size += value * value;
    const auto count = static_cast<double>(values.size());
    const double mean = sum / count, size = std::sqrt(of_size / count);
    for (const auto& [value, scale] : values) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / count) + 1e-9;
    for (auto& [value, scale] : values) scale = std::hypot(value, size) / deviation, value = (value - mean) / deviation;
  })};
}

std::vector<Array> lp_normalization(const AttributeList& attributes, Inputs inputs) {
  const bool first = integer(attributes, "p", 2) == 1;
  return {of_axes(at(inputs, 0), {integer(attributes, "axis", -1)}, [first](std::vector<Scaled>& values) {
    double sum = 0;
    for (const auto& [value, scale] : values) sum += first ? std::fabs(value) : value * value;
    const double norm = first ? sum : std::sqrt(sum);
    for (auto& [value, scale] : values) value = norm == 0 ? 0 : value / norm, scale = std::fabs(value);
  })};
}

std::vector<Array> layer_norm(const AttributeList& attributes, Inputs inputs) {
  const double epsilon = real(attributes, "epsilon", 1e-5);
  Array y = to_scale(at(inputs, 0));
  Shape per_row = y.shape;
  std::size_t length = 1;
  for (int d = axis_of(integer(attributes, "axis", -1), y.shape.rank()); d < y.shape.rank(); ++d) {
    length *= static_cast<std::size_t>(y.shape[d]);
    per_row = per_row.with(d, 1);
  }
  Array mean = sums(per_row, DType::f32), inverse = zeros(per_row, DType::f32);
  for (std::size_t row = 0; row < mean.values.size(); ++row) {
    const Statistics statistics = standardise(y, row * length, length, epsilon);
    put(mean, row, Scaled{statistics.mean, statistics.size});
    inverse.values[row] = statistics.inverse_deviation;
    for (std::size_t i = 0; i < length; ++i)
      put_affine(y, row * length + i, broadcast_to(at(inputs, 1), y.shape, row * length + i),
                 has(inputs, 2) ? broadcast_to(inputs[2], y.shape, row * length + i) : 0, nullptr,
                 has(inputs, 3) ? inputs[3].values[row * length + i] : 0);
  }
  return {y, mean, inverse};
}

// One group differs in `axis` only or, flattened, in all dimensions from `axis` on.
template <bool log>
std::vector<Array> softmax(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const int rank = x.shape.rank();
  const bool flatten = integer(attributes, "flatten", 0) != 0;
  std::int64_t axis = integer(attributes, "axis", -1);
  if (axis < 0) axis += rank;
  std::vector<double> top(x.values.size(), -std::numeric_limits<double>::infinity()), sum(x.values.size(), 0.0);
  const auto group = [&](std::size_t i) {
    Index index = index_of(x.shape, static_cast<std::int64_t>(i));
    for (int d = 0; d < rank; ++d)
      if (d == axis || (flatten && d > axis)) index[static_cast<std::size_t>(d)] = 0;
    return static_cast<std::size_t>(flat_of(x.shape, index));
  };
  for (std::size_t i = 0; i < x.values.size(); ++i) top[group(i)] = std::max(top[group(i)], x.values[i]);
  for (std::size_t i = 0; i < x.values.size(); ++i) sum[group(i)] += std::exp(x.values[i] - top[group(i)]);
  Array y = sums(x.shape, x.dtype);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t g = group(i);
    const double value = x.values[i] - top[g];  // rounded by kernels, like the sum
    if (log) {
      const double of_sum = std::log(sum[g]);
      put(y, i, Scaled{value - of_sum, std::hypot(value, of_sum, 1)});
    } else {
      const double result = std::exp(value) / sum[g];
      put(y, i, Scaled{result, result == 0 ? 0 : result * std::hypot(value, 1)});
    }
  }
  return {y};
}

std::vector<Array> lrn(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::int64_t size = integer(attributes, "size", 1), channels = x.shape[1];
  const double alpha = real(attributes, "alpha", 1e-4), beta = real(attributes, "beta", 0.75);
  const double bias = real(attributes, "bias", 1.0);
  Array y = x;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    Index index = index_of(x.shape, static_cast<std::int64_t>(i));
    const std::int64_t c = index[1];
    double squares = 0;
    // From c - floor((size-1)/2) to c + ceil((size-1)/2), clipped to the channels.
    for (std::int64_t k = c - (size - 1) / 2; k <= c + size / 2; ++k) {
      if (k < 0 || k >= channels) continue;
      index[1] = k;
      const double value = x.values[static_cast<std::size_t>(flat_of(x.shape, index))];
      squares += value * value;
    }
    y.values[i] = x.values[i] / std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
  }
  return {y};
}

constexpr Entry entries[] = {
    {"BatchNormalization", batch_norm},
    {"InstanceNormalization", instance_norm},
    {"GroupNormalization", group_norm},
    {"LayerNormalization", layer_norm},
    {"RMSNormalization", rms_norm},
    {"MeanVarianceNormalization", mean_variance},
    {"LpNormalization", lp_normalization},
    {"Softmax", softmax<false>},
    {"LogSoftmax", softmax<true>},
    {"LRN", lrn},
    {"GlobalResponseNorm", global_response_norm},
};

}  // namespace

std::span<const Entry> normalization_entries() { return entries; }

}  // namespace lenslet::oracle
