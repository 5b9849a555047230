// References of Conv and ConvTranspose with their fused parts, as the ONNX specification defines them. Conv zero-pads a
// copy, then multiplies and adds; ConvTranspose scatters the products of each input.

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <utility>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

/// One spatial axis: output positions o read padded positions o * stride + tap * dilation.
struct Axis {
  std::int64_t in = 1, taps = 1, stride = 1, dilation = 1, before = 0, after = 0;
  std::int64_t padded() const { return in + before + after; }
  std::int64_t out() const { return (padded() - (taps - 1) * dilation - 1) / stride + 1; }
};

// Entry of a list counted from its last axis. `halves` is 2 for pads, whose ends are the second half. Normalised lists
// have two or three entries; 1-D convolutions use the last.
std::int64_t entry(const AttributeList& attributes, std::string_view name, std::size_t from_last, std::int64_t fallback,
                   std::size_t halves = 1, std::size_t half = 0) {
  const std::vector<std::int64_t> list = integers(attributes, name);
  const std::size_t size = list.size() / halves;
  return from_last < size ? list[size * (half + 1) - 1 - from_last] : fallback;
}

// Axis 0 is the last one.
Axis axis_from(const AttributeList& attributes, std::size_t i, std::int64_t in, std::int64_t taps) {
  Axis axis;
  axis.in = in;
  axis.taps = taps;
  axis.stride = entry(attributes, "strides", i, 1);
  axis.dilation = entry(attributes, "dilations", i, 1);
  const std::string mode = text(attributes, "auto_pad", "NOTSET");
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    const auto out = static_cast<std::int64_t>(std::ceil(static_cast<double>(in) / static_cast<double>(axis.stride)));
    const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * axis.stride + (taps - 1) * axis.dilation + 1 - in);
    axis.before = mode == "SAME_UPPER" ? total / 2 : (total + 1) / 2;
    axis.after = total - axis.before;
  } else if (mode != "VALID") {
    axis.before = entry(attributes, "pads", i, 0, 2, 0);
    axis.after = entry(attributes, "pads", i, 0, 2, 1);
  }
  if (axis.padded() < (taps - 1) * axis.dilation + 1)
    throw Error(ErrorKind::invalid_argument, "oracle: Conv filter larger than the padded input");
  return axis;
}

std::vector<double> scales(const AttributeList& attributes) {
  for (const auto& [name, value] : attributes)
    if (name == "weight_scale") return std::get<std::vector<double>>(value);
  return {};
}

// [planes][h][w] -> [planes][padded h][padded w], zero around.
std::vector<double> pad_planes(const std::vector<double>& x, std::int64_t planes, const Axis& rows,
                               const Axis& columns) {
  const std::int64_t height = rows.padded(), width = columns.padded();
  std::vector<double> padded(static_cast<std::size_t>(planes * height * width), 0.0);
  for (std::int64_t row = 0; row < planes * rows.in; ++row) {
    const std::int64_t plane = row / rows.in, h = row % rows.in;
    const auto from = x.begin() + row * columns.in;
    std::copy(from, from + columns.in, padded.begin() + (plane * height + h + rows.before) * width + columns.before);
  }
  return padded;
}

/// Sizes of a tensor [N,C,...], with 1 for missing spatial axes.
struct Sizes {
  std::int64_t n, c, d = 1, h = 1, w = 1;
  explicit Sizes(const Shape& shape) : n(shape[0]), c(shape[1]), w(shape[shape.rank() - 1]) {
    if (shape.rank() < 3 || shape.rank() > 5)
      throw Error(ErrorKind::invalid_argument, "oracle: convolution of " + shape.str());
    if (shape.rank() > 3) h = shape[shape.rank() - 2];
    if (shape.rank() > 4) d = shape[2];
  }
};

Array result(const Shape& like, std::int64_t filters, std::int64_t depth, std::int64_t height, std::int64_t width) {
  Shape shape = like.with(1, filters).with(like.rank() - 1, width);
  if (like.rank() > 3) shape = shape.with(like.rank() - 2, height);
  if (like.rank() > 4) shape = shape.with(2, depth);
  return sums(shape, DType::f32);
}

/// Maximum over the existing pixels of each window; NaN if one is NaN. The scale is the window's largest. `pool`: size,
/// stride, and pads in MaxPool's order.
Array maxima(const Array& x, const std::vector<std::int64_t>& pool) {
  const std::int64_t size = pool.at(0), stride = pool.at(1), top = pool.at(2), left = pool.at(3);
  const std::int64_t height = x.shape[2], width = x.shape[3];
  Array y = sums(x.shape.with(2, (height + top + pool.at(4) - size) / stride + 1)
                     .with(3, (width + left + pool.at(5) - size) / stride + 1),
                 DType::f32);
  std::size_t to = 0;
  for (std::int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane)
    for (std::int64_t p = 0; p < y.shape[2]; ++p)
      for (std::int64_t q = 0; q < y.shape[3]; ++q) {
        Scaled most{-std::numeric_limits<double>::infinity(), 0};
        for (std::int64_t h = p * stride - top; h < p * stride - top + size; ++h)
          for (std::int64_t w = q * stride - left; w < q * stride - left + size; ++w) {
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            const auto from = static_cast<std::size_t>((plane * height + h) * width + w);
            if (x.values[from] > most.value || std::isnan(x.values[from])) most.value = x.values[from];
            most.scale = std::max(most.scale, x.scale[from]);
          }
        put(y, to++, most);
      }
  return y;
}

/// Magnitudes of an operand: its scale, if it has one, else its values. `of_all_taps` (a kernel rounds the taps of a
/// filter together): the root mean square over the filter's taps.
std::vector<double> sizes_of(const Array& operand, bool of_all_taps) {
  std::vector<double> sizes = operand.scale.empty() ? operand.values : operand.scale;
  if (!of_all_taps) return sizes;
  const auto filters = static_cast<std::size_t>(operand.shape[0] * operand.shape[1]);
  const std::size_t taps = filters == 0 ? 0 : sizes.size() / filters;
  for (std::size_t first = 0; taps > 0 && first < sizes.size(); first += taps) {
    double squares = 0;
    for (std::size_t i = first; i < first + taps; ++i) squares += sizes[i] * sizes[i];
    std::fill_n(sizes.begin() + static_cast<std::ptrdiff_t>(first), taps,
                std::sqrt(squares / static_cast<double>(taps)));
  }
  return sizes;
}

/// Sliding maximum of the finite values within `reach`, along `length` elements that lie `stride` apart.
void widen_line(double* line, std::int64_t length, std::int64_t stride, std::int64_t reach) {
  std::deque<std::pair<std::int64_t, double>> falling;  // candidates with their positions, largest first
  std::vector<double> widened(static_cast<std::size_t>(length));
  for (std::int64_t i = 0, next = 0; i < length; ++i) {
    for (; next < length && next <= i + reach; ++next) {
      const double value = std::isfinite(line[next * stride]) ? line[next * stride] : 0;
      while (!falling.empty() && falling.back().second <= value) falling.pop_back();
      falling.emplace_back(next, value);
    }
    while (falling.front().first < i - reach) falling.pop_front();
    widened[static_cast<std::size_t>(i)] = falling.front().second;
  }
  for (std::int64_t i = 0; i < length; ++i) line[i * stride] = widened[static_cast<std::size_t>(i)];
}

/// Replaces a scale that holds sums of squares by its root, maximised within `reach` rows and columns.
void take_roots(Array& y, std::int64_t reach) {
  for (double& square : y.scale) square = std::sqrt(square);
  if (reach == 0) return;
  const std::int64_t width = y.shape[y.shape.rank() - 1], height = y.shape.rank() > 3 ? y.shape[y.shape.rank() - 2] : 1;
  const std::int64_t area = width * height, planes = area == 0 ? 0 : y.shape.elems() / area;
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    double* const first = y.scale.data() + plane * area;
    for (std::int64_t row = 0; row < height; ++row) widen_line(first + row * width, width, 1, reach);
    for (std::int64_t column = 0; column < width; ++column) widen_line(first + column, height, width, reach);
  }
}

/// Applies bias, residual and activation to values and scale.
void add_epilogue(Array& y, std::int64_t filters, const AttributeList& attributes, const Array* bias,
                  const Array* residual) {
  const std::vector<double> factors = scales(attributes);
  const std::function<double(double)> activation = fused_activation(attributes);
  const auto area = static_cast<std::size_t>(y.shape.elems() / std::max<std::int64_t>(1, y.shape[0] * filters));
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const std::size_t filter = i / area % static_cast<std::size_t>(filters);
    const double factor = factors.empty() ? 1 : factors.at(filter);
    Sum sum;
    sum.add(y.values[i] * factor, y.scale.empty() ? 0 : y.scale[i] * factor);
    if (bias != nullptr) sum.add(bias->values.at(filter));
    if (residual != nullptr) sum.add(residual->values.at(i));
    if (y.scale.empty())
      y.values[i] = activation ? activation(sum.value) : sum.value;
    else
      put(y, i, activation ? through(activation, sum.value, sum.scale()) : Scaled{sum.value, sum.scale()});
  }
}

/// Distance in outputs within which errors mix (run()). Phases and dilated parts are computed apart.
std::int64_t reach_of(const AttributeList& attributes) {
  std::int64_t reach = std::max<std::int64_t>(0, integer(attributes, "reach", 0)), apart = 1;
  for (const char* const name : {"strides", "dilations"})
    for (const std::int64_t step : integers(attributes, name)) apart = std::max(apart, step);
  return reach * apart;
}

const Array* given(Inputs inputs, std::size_t i) { return has(inputs, i) ? &inputs[i] : nullptr; }

std::vector<Array> conv(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  const bool stores_codes = has(attributes, "multipliers");
  for (double& value : x.values) value -= static_cast<double>(integer(attributes, "x_zero_point", 0));
  const Array& w = at(inputs, 1);
  if (x.shape.rank() != w.shape.rank())
    throw Error(ErrorKind::invalid_argument, "oracle: Conv of " + x.shape.str() + " and " + w.shape.str());
  const Sizes of_x(x.shape), of_w(w.shape);
  const Axis depths = x.shape.rank() < 5 ? Axis{} : axis_from(attributes, 2, of_x.d, of_w.d);
  const Axis rows = x.shape.rank() < 4 ? Axis{} : axis_from(attributes, 1, of_x.h, of_w.h);
  const Axis columns = axis_from(attributes, 0, of_x.w, of_w.w);
  const std::int64_t images = of_x.n, channels = of_x.c, filters = of_w.n, group_channels = of_w.c;
  const std::int64_t groups = integer(attributes, "group", 1);
  if (group_channels * groups != channels || filters % groups != 0)
    throw Error(ErrorKind::invalid_argument, "oracle: Conv channels do not match its groups");

  const std::int64_t p_count = rows.out(), q_count = columns.out();
  Array y = result(x.shape, filters, depths.out(), p_count, q_count);
  const std::int64_t planes = images * channels * of_x.d, reach = reach_of(attributes);
  const bool scaled = integer(attributes, "reach", 0) != no_scale || has(attributes, "max_pool");
  const std::vector<double> padded = pad_planes(x.values, planes, rows, columns),
                            padded_sizes = pad_planes(sizes_of(x, false), planes, rows, columns),
                            weight_sizes = sizes_of(w, reach > 0);

  double *row = y.values.data(), *squares = y.scale.data();  // of y, in memory order
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t k = 0; k < filters; ++k)
      for (std::int64_t line = 0; line < depths.out() * p_count; ++line, row += q_count, squares += q_count) {
        const std::int64_t o = line / p_count, p = line % p_count;
        for (std::int64_t c = 0; c < group_channels; ++c)
          for (std::int64_t t = 0; t < depths.taps; ++t)
            for (std::int64_t r = 0; r < rows.taps; ++r)
              for (std::int64_t s = 0; s < columns.taps; ++s) {
                const std::int64_t d = o * depths.stride + t * depths.dilation - depths.before;
                if (d < 0 || d >= of_x.d) continue;
                const std::int64_t channel = n * channels + k / (filters / groups) * group_channels + c;
                const std::int64_t from = (channel * of_x.d + d) * rows.padded() + p * rows.stride + r * rows.dilation;
                const std::int64_t first = from * columns.padded() + s * columns.dilation;
                const double *tap = padded.data() + first, *size = padded_sizes.data() + first;
                const auto weight_at =
                    (((k * group_channels + c) * depths.taps + t) * rows.taps + r) * columns.taps + s;
                const double weight = w.values[static_cast<std::size_t>(weight_at)];
                const double weight_size = weight_sizes[static_cast<std::size_t>(weight_at)];
                for (std::int64_t q = 0; q < q_count; ++q) row[q] += weight * tap[q * columns.stride];
                for (std::int64_t q = 0; scaled && q < q_count; ++q) {
                  const double term = weight_size * size[q * columns.stride];
                  squares[q] += term * term;
                }
              }
      }
  take_roots(y, reach);
  if (!scaled) y.scale.clear();
  add_epilogue(y, filters, attributes, given(inputs, 2), given(inputs, 3));
  if (stores_codes) y = requantized(attributes, std::move(y), 1);
  if (const std::vector<std::int64_t> pool = integers(attributes, "max_pool"); !pool.empty()) return {maxima(y, pool)};
  return {y};
}

/// A depthwise Conv (attributes "depthwise_...") followed by a Conv (the other attributes), unrounded in between.
std::vector<Array> separable_conv(const AttributeList& attributes, Inputs inputs) {
  constexpr std::string_view prefix = "depthwise_";
  AttributeList first, second;
  for (const auto& [name, value] : attributes) {
    const bool of_first = name.compare(0, prefix.size(), prefix) == 0;
    (of_first ? first : second).emplace_back(of_first ? name.substr(prefix.size()) : name, value);
  }
  const auto input = [&](std::size_t i) {
    Array left_out;
    left_out.present = false;
    return has(inputs, i) ? inputs[i] : left_out;
  };
  const Array of_first[] = {at(inputs, 0), at(inputs, 1), input(2)};
  const Array of_second[] = {conv(first, of_first).at(0), at(inputs, 3), input(4), input(5)};
  return conv(second, of_second);
}

/// Each pixel's channels to mean 0 and variance 1.
void standardise_channels(Array& x, double epsilon) {
  const std::int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3];
  for (std::int64_t pixel = 0; pixel < x.shape[0] * plane; ++pixel) {
    const std::int64_t first = pixel / plane * channels * plane + pixel % plane;
    const auto value = [&](std::int64_t c) -> double& { return x.values[static_cast<std::size_t>(first + c * plane)]; };
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < channels; ++c) mean += value(c) / static_cast<double>(channels);
    for (std::int64_t c = 0; c < channels; ++c)
      variance += (value(c) - mean) * (value(c) - mean) / static_cast<double>(channels);
    for (std::int64_t c = 0; c < channels; ++c) value(c) = (value(c) - mean) / std::sqrt(variance + epsilon);
  }
}

/// A Conv (the attributes without "x_") of activation(scale[c] * n(x) + shift[c]), unrounded in between; with an
/// epsilon n is standardise_channels().
std::vector<Array> preactivated_conv(const AttributeList& attributes, Inputs inputs) {
  AttributeList before, after;
  for (const auto& [name, value] : attributes)
    (name.starts_with("x_") ? before : after).emplace_back(name.starts_with("x_") ? name.substr(2) : name, value);
  Array x = at(inputs, 0);
  const Array &scale = at(inputs, 1), &shift = at(inputs, 2);
  const auto activation = fused_activation(before);
  const std::int64_t plane = x.shape[2] * x.shape[3];
  if (const double epsilon = real(before, "epsilon", -1); epsilon >= 0) standardise_channels(x, epsilon);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / plane % x.shape[1]);
    x.values[i] = scale.values[c] * x.values[i] + shift.values[c];
    if (activation) x.values[i] = activation(x.values[i]);
  }
  const auto input = [&](std::size_t i) {
    Array left_out;
    left_out.present = false;
    return has(inputs, i) ? inputs[i] : left_out;
  };
  const Array of_conv[] = {x, at(inputs, 3), input(4), input(5)};
  return conv(after, of_conv);
}

/// One spatial axis of ConvTranspose: input i and tap r add to output i * stride + r * dilation - before.
struct TransposedAxis {
  std::int64_t in = 1, taps = 1, stride = 1, dilation = 1, before = 0, out = 1;
};

// ONNX, ConvTranspose-22: total_padding = stride * (in - 1) + output_padding + (taps - 1) * dilation + 1 -
// output_shape.
TransposedAxis transposed_axis(const AttributeList& attributes, std::size_t i, std::int64_t in, std::int64_t taps) {
  TransposedAxis axis{.in = in, .taps = taps};
  axis.stride = entry(attributes, "strides", i, 1);
  axis.dilation = entry(attributes, "dilations", i, 1);
  const std::string mode = text(attributes, "auto_pad", "NOTSET");
  const std::int64_t whole =
      axis.stride * (in - 1) + entry(attributes, "output_padding", i, 0) + (taps - 1) * axis.dilation + 1;
  const bool shaped = has(attributes, "output_shape"), same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!shaped && !same) {
    const bool padded = mode != "VALID";
    axis.before = padded ? entry(attributes, "pads", i, 0, 2, 0) : 0;
    axis.out = whole - axis.before - (padded ? entry(attributes, "pads", i, 0, 2, 1) : 0);
    return axis;
  }
  axis.out = shaped ? entry(attributes, "output_shape", i, 1) : in * axis.stride;
  const std::int64_t total = std::max<std::int64_t>(0, whole - axis.out);
  axis.before = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
  return axis;
}

std::vector<Array> conv_transpose(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Array& w = at(inputs, 1);
  const Sizes of_x(x.shape), of_w(w.shape);
  const TransposedAxis depths = x.shape.rank() < 5 ? TransposedAxis{} : transposed_axis(attributes, 2, of_x.d, of_w.d);
  const TransposedAxis rows = x.shape.rank() < 4 ? TransposedAxis{} : transposed_axis(attributes, 1, of_x.h, of_w.h);
  const TransposedAxis columns = transposed_axis(attributes, 0, of_x.w, of_w.w);
  const std::int64_t images = of_x.n, channels = of_x.c, groups = integer(attributes, "group", 1);
  const std::int64_t group_k = of_w.c, filters = group_k * groups;
  Array y = result(x.shape, filters, depths.out, rows.out, columns.out);
  const std::int64_t reach = reach_of(attributes);
  const std::vector<double> weight_sizes = sizes_of(w, reach > 0);

  const double* from = x.values.data();  // in memory order
  for (std::int64_t plane = 0; plane < images * channels * depths.in; ++plane)
    for (std::int64_t h = 0; h < rows.in; ++h)
      for (std::int64_t i = 0; i < columns.in; ++i, ++from)
        for (std::int64_t k = 0; k < group_k; ++k)
          for (std::int64_t t = 0; t < depths.taps; ++t)
            for (std::int64_t r = 0; r < rows.taps; ++r)
              for (std::int64_t s = 0; s < columns.taps; ++s) {
                const std::int64_t n = plane / depths.in / channels, c = plane / depths.in % channels;
                const std::int64_t o = plane % depths.in * depths.stride + t * depths.dilation - depths.before;
                const std::int64_t p = h * rows.stride + r * rows.dilation - rows.before;
                const std::int64_t q = i * columns.stride + s * columns.dilation - columns.before;
                if (o < 0 || o >= depths.out || p < 0 || p >= rows.out || q < 0 || q >= columns.out) continue;
                const std::int64_t filter = c / (channels / groups) * group_k + k;
                const auto weight_at = (((c * group_k + k) * depths.taps + t) * rows.taps + r) * columns.taps + s;
                const auto y_at = (((n * filters + filter) * depths.out + o) * rows.out + p) * columns.out + q;
                y.values[static_cast<std::size_t>(y_at)] += *from * w.values[static_cast<std::size_t>(weight_at)];
                const double term = *from * weight_sizes[static_cast<std::size_t>(weight_at)];
                y.scale[static_cast<std::size_t>(y_at)] += term * term;
              }
  take_roots(y, reach);
  add_epilogue(y, filters, attributes, given(inputs, 2), nullptr);
  return {y};
}

// Arrays are in N C H W order, whatever the layout was.
std::vector<Array> same_elements(const AttributeList&, Inputs inputs) { return {at(inputs, 0)}; }

/// An element of a plane; zero outside.
double value_at(const double* plane, std::int64_t height, std::int64_t width, std::int64_t h, std::int64_t w) {
  return h < 0 || h >= height || w < 0 || w >= width ? 0 : plane[h * width + w];
}

/// Bilinear interpolation. The scale includes the effect of rounded coordinates: a rounding is an eighth of what
/// tolerances of sums allow for (ops/core/sum_tolerance.h).
Scaled bilinear(const double* plane, std::int64_t height, std::int64_t width, double h, double v) {
  if (std::isnan(h) || std::isnan(v)) return {h + v, 0};
  const double top = std::floor(h), left = std::floor(v);
  if (std::abs(top) >= 1e9 || std::abs(left) >= 1e9) return {};  // far outside: zeros only
  const auto at = [&](int down, int right) {
    return value_at(plane, height, width, static_cast<std::int64_t>(top) + down,
                    static_cast<std::int64_t>(left) + right);
  };
  const double a = at(0, 0), b = at(0, 1), c = at(1, 0), d = at(1, 1), down = h - top, right = v - left;
  const double value = (1 - down) * ((1 - right) * a + right * b) + down * ((1 - right) * c + right * d);
  const double along_h = std::max(std::abs(c - a), std::abs(d - b)),
               along_w = std::max(std::abs(b - a), std::abs(d - c));
  return {value, std::hypot(value, std::abs(h) * along_h / 8, std::abs(v) * along_w / 8)};
}

// Each tap is sampled at its position plus its offset.
std::vector<Array> deform_conv(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &w = at(inputs, 1), &offset = at(inputs, 2);
  const auto strides = integers(attributes, "strides", {1, 1}), dilations = integers(attributes, "dilations", {1, 1}),
             pads = integers(attributes, "pads", {0, 0, 0, 0});
  const std::int64_t groups = integer(attributes, "group", 1), offset_groups = integer(attributes, "offset_group", 1);
  const std::int64_t channels = x.shape[1], filters = w.shape[0], taps_w = w.shape[3], taps = w.shape[2] * taps_w;
  Array y = sums({x.shape[0], filters, offset.shape[2], offset.shape[3]}, x.dtype);
  const std::int64_t area = y.shape[2] * y.shape[3], terms = channels / groups * taps;
  std::vector<Scaled> samples(static_cast<std::size_t>(channels * taps));
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t pixel = 0; pixel < area; ++pixel) {
      const std::int64_t row = pixel / y.shape[3], column = pixel % y.shape[3];
      for (std::int64_t i = 0; i < channels * taps; ++i) {
        const std::int64_t channel = i / taps, r = i % taps / taps_w, s = i % taps_w;
        const std::int64_t tap = channel / (channels / offset_groups) * taps + i % taps;
        const auto of_tap = [&](const Array& array, std::int64_t plane) {
          return array.values[static_cast<std::size_t>((n * array.shape[1] + plane) * area + pixel)];
        };
        const double h = static_cast<double>(row * strides[0] - pads[0] + r * dilations[0]) + of_tap(offset, 2 * tap);
        const double v =
            static_cast<double>(column * strides[1] - pads[1] + s * dilations[1]) + of_tap(offset, 2 * tap + 1);
        const double* const plane = x.values.data() + (n * channels + channel) * x.shape[2] * x.shape[3];
        Scaled& sample = samples[static_cast<std::size_t>(i)];
        sample = bilinear(plane, x.shape[2], x.shape[3], h, v);
        if (!has(inputs, 4)) continue;
        const double mask = of_tap(inputs[4], tap);
        sample = {sample.value * mask, sample.scale * mask};
      }
      for (std::int64_t filter = 0; filter < filters; ++filter) {
        Sum sum;
        if (has(inputs, 3)) sum.add(inputs[3].values[static_cast<std::size_t>(filter)]);
        const double* const weights = w.values.data() + filter * terms;
        const Scaled* const of_group = samples.data() + filter / (filters / groups) * terms;
        for (std::int64_t i = 0; i < terms; ++i)
          sum.add(of_group[i].value * weights[i], of_group[i].scale * weights[i]);
        put(y, static_cast<std::size_t>((n * filters + filter) * area + pixel), sum);
      }
    }
  return {y};
}

constexpr Entry entries[] = {{"Conv", conv},
                             {"ConvTranspose", conv_transpose},
                             {"LayoutConvert", same_elements},
                             {"DeformConv", deform_conv},
                             {"PreactivatedConv", preactivated_conv},
                             {"SeparableConv", separable_conv}};

}  // namespace

std::span<const Entry> conv_entries() { return entries; }

std::function<double(double)> fused_activation(const AttributeList& attributes) {
  const std::string kind = text(attributes, "activation", "none");
  const double alpha = real(attributes, "activation_alpha", 0);
  const double beta = real(attributes, "activation_beta", 0);
  const auto between = [](double low, double v, double high) {  // bounds that cross give the upper one, as in Clip
    const double raised = v < low ? low : v;
    return raised > high ? high : raised;
  };
  if (kind == "none") return {};
  if (kind == "relu") return [](double x) { return x < 0 ? 0 : x; };
  if (kind == "clip") return [=](double x) { return between(alpha, x, beta); };
  if (kind == "leaky_relu") return [=](double x) { return x < 0 ? alpha * x : x; };
  if (kind == "sigmoid") return [](double x) { return 1 / (1 + std::exp(-x)); };
  if (kind == "silu") return [](double x) { return x / (1 + std::exp(-x)); };
  if (kind == "hard_swish") return [=](double x) { return x * between(0, alpha * x + beta, 1); };
  if (kind == "affine_relu") return [=](double x) { return (x < 0 ? 0 : alpha * x) + beta; };
  if (kind == "swish") return [=](double x) { return x / (1 + std::exp(-alpha * x)); };
  if (kind == "gelu_tanh")
    return [](double x) {  // x / 2 * (1 + tanh(u)), which cancels below 0
      const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    };
  if (kind == "star_relu") return [=](double x) { return x < 0 ? beta : alpha * x * x + beta; };
  if (kind == "gelu") return [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); };
  if (kind == "hard_sigmoid") return [=](double x) { return between(0, alpha * x + beta, 1); };
  throw Error(ErrorKind::invalid_argument, "oracle: activation '" + std::string(kind) + "'");
}

}  // namespace lenslet::oracle
