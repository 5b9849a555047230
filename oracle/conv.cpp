// References of Conv, which zero-pads a copy, then multiplies and adds as the ONNX specification defines it, and of
// ConvTranspose, which adds each input's products where they belong; with their fused parts.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

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

// Entry of a list counted from its last axis; `halves` 2: of pads, whose ends are the second half. The normalised lists
// have two entries or three; 1-D convolutions use the last.
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

/// Sizes of a tensor [N,C,...], with 1 for the spatial axes that it has not.
struct Sizes {
  std::int64_t n, c, d = 1, h = 1, w = 1;
  explicit Sizes(const Shape& shape) : n(shape[0]), c(shape[1]), w(shape[shape.rank() - 1]) {
    if (shape.rank() < 3 || shape.rank() > 5)
      throw Error(ErrorKind::invalid_argument, fmt::format("oracle: convolution of {}", shape.str()));
    if (shape.rank() > 3) h = shape[shape.rank() - 2];
    if (shape.rank() > 4) d = shape[2];
  }
};

Array result(const Shape& like, std::int64_t filters, std::int64_t depth, std::int64_t height, std::int64_t width) {
  Shape shape = like.with(1, filters).with(like.rank() - 1, width);
  if (like.rank() > 3) shape = shape.with(like.rank() - 2, height);
  if (like.rank() > 4) shape = shape.with(2, depth);
  return zeros(shape, DType::f32);
}

/// Over windows of each plane, of which what exists counts; NaN where one is. `pool`: size, stride, and pads as those
/// of MaxPool.
Array maxima(const Array& x, const std::vector<std::int64_t>& pool) {
  const std::int64_t size = pool.at(0), stride = pool.at(1), top = pool.at(2), left = pool.at(3);
  const std::int64_t height = x.shape[2], width = x.shape[3];
  Array y = zeros(x.shape.with(2, (height + top + pool.at(4) - size) / stride + 1)
                      .with(3, (width + left + pool.at(5) - size) / stride + 1),
                  DType::f32);
  auto to = y.values.begin();
  for (std::int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane)
    for (std::int64_t p = 0; p < y.shape[2]; ++p)
      for (std::int64_t q = 0; q < y.shape[3]; ++q) {
        double most = -std::numeric_limits<double>::infinity();
        for (std::int64_t h = p * stride - top; h < p * stride - top + size; ++h)
          for (std::int64_t w = q * stride - left; w < q * stride - left + size; ++w) {
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            const double value = x.values[static_cast<std::size_t>((plane * height + h) * width + w)];
            if (value > most || std::isnan(value)) most = value;
          }
        *to++ = most;
      }
  return y;
}

std::vector<Array> conv(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const Array& w = at(inputs, 1);
  if (x.shape.rank() != w.shape.rank())
    throw Error(ErrorKind::invalid_argument, fmt::format("oracle: Conv of {} and {}", x.shape.str(), w.shape.str()));
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
  const std::vector<double> padded = pad_planes(x.values, images * channels * of_x.d, rows, columns);
  const std::vector<double> scale = scales(attributes);
  const std::function<double(double)> activation = fused_activation(attributes);

  double* row = y.values.data();  // of y, in memory order
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t k = 0; k < filters; ++k)
      for (std::int64_t line = 0; line < depths.out() * p_count; ++line, row += q_count) {
        const std::int64_t o = line / p_count, p = line % p_count;
        for (std::int64_t c = 0; c < group_channels; ++c)
          for (std::int64_t t = 0; t < depths.taps; ++t)
            for (std::int64_t r = 0; r < rows.taps; ++r)
              for (std::int64_t s = 0; s < columns.taps; ++s) {
                const std::int64_t d = o * depths.stride + t * depths.dilation - depths.before;
                if (d < 0 || d >= of_x.d) continue;
                const std::int64_t channel = n * channels + k / (filters / groups) * group_channels + c;
                const std::int64_t from = (channel * of_x.d + d) * rows.padded() + p * rows.stride + r * rows.dilation;
                const double* tap = padded.data() + from * columns.padded() + s * columns.dilation;
                const auto weight_at =
                    (((k * group_channels + c) * depths.taps + t) * rows.taps + r) * columns.taps + s;
                const double weight = w.values[static_cast<std::size_t>(weight_at)];
                for (std::int64_t q = 0; q < q_count; ++q) row[q] += weight * tap[q * columns.stride];
              }
        const auto filter = static_cast<std::size_t>(k);
        for (std::int64_t q = 0; q < q_count; ++q) {
          double value = row[q];
          if (!scale.empty()) value *= scale.at(filter);
          if (has(inputs, 2)) value += inputs[2].values.at(filter);
          if (has(inputs, 3)) value += inputs[3].values.at(static_cast<std::size_t>(row - y.values.data() + q));
          row[q] = activation(value);
        }
      }
  if (const std::vector<std::int64_t> pool = integers(attributes, "max_pool"); !pool.empty()) return {maxima(y, pool)};
  return {y};
}

/// A depthwise Conv, whose attributes are called "depthwise_...", and behind it a Conv of the others. What lies between
/// is not rounded.
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
  const std::int64_t group_k = of_w.c, filters = group_k * groups, area = depths.out * rows.out * columns.out;
  Array y = result(x.shape, filters, depths.out, rows.out, columns.out);

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
              }

  const std::vector<double> scale = scales(attributes);
  const std::function<double(double)> activation = fused_activation(attributes);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto filter = static_cast<std::size_t>(static_cast<std::int64_t>(i) / area % filters);
    double value = y.values[i];
    if (!scale.empty()) value *= scale.at(filter);
    if (has(inputs, 2)) value += inputs[2].values.at(filter);
    y.values[i] = activation(value);
  }
  return {y};
}

// Arrays are in N C H W order whatever the layout was.
std::vector<Array> same_elements(const AttributeList&, Inputs inputs) { return {at(inputs, 0)}; }

// Each tap at its place plus its offset, between the four elements around it; zeros lie outside.
std::vector<Array> deform_conv(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &w = at(inputs, 1), &offset = at(inputs, 2);
  const auto strides = integers(attributes, "strides", {1, 1}), dilations = integers(attributes, "dilations", {1, 1}),
             pads = integers(attributes, "pads", {0, 0, 0, 0});
  const std::int64_t groups = integer(attributes, "group", 1), offset_groups = integer(attributes, "offset_group", 1);
  const std::int64_t channels = x.shape[1], filters = w.shape[0], taps_h = w.shape[2], taps_w = w.shape[3];
  Array y = zeros({x.shape[0], filters, offset.shape[2], offset.shape[3]}, x.dtype);
  const auto value = [](const Array& of, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    if (c < 0 || c >= of.shape[2] || d < 0 || d >= of.shape[3]) return 0.0;
    return of.values[static_cast<std::size_t>(((a * of.shape[1] + b) * of.shape[2] + c) * of.shape[3] + d)];
  };
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto to = index_of(y.shape, static_cast<std::int64_t>(i));
    const std::int64_t n = to[0], filter = to[1], row = to[2], column = to[3];
    double sum = has(inputs, 3) ? inputs[3].values[static_cast<std::size_t>(filter)] : 0;
    for (std::int64_t c = 0; c < channels / groups; ++c)
      for (std::int64_t r = 0; r < taps_h; ++r)
        for (std::int64_t s = 0; s < taps_w; ++s) {
          const std::int64_t channel = filter / (filters / groups) * (channels / groups) + c;
          const std::int64_t tap = (channel / (channels / offset_groups) * taps_h + r) * taps_w + s;
          const double h = static_cast<double>(row * strides[0] - pads[0] + r * dilations[0]) +
                           value(offset, n, 2 * tap, row, column);
          const double v = static_cast<double>(column * strides[1] - pads[1] + s * dilations[1]) +
                           value(offset, n, 2 * tap + 1, row, column);
          double sample = h + v;  // where that is no number
          if (!std::isnan(h) && !std::isnan(v)) {
            sample = 0;
            const double top = std::floor(h), left = std::floor(v);
            // Far away there are zeros only.
            if (std::abs(top) < 1e9 && std::abs(left) < 1e9)
              for (const std::int64_t dh : {0, 1})
                for (const std::int64_t dv : {0, 1})
                  sample +=
                      (dh == 0 ? 1 - (h - top) : h - top) * (dv == 0 ? 1 - (v - left) : v - left) *
                      value(x, n, channel, static_cast<std::int64_t>(top) + dh, static_cast<std::int64_t>(left) + dv);
          }
          if (has(inputs, 4)) sample *= value(inputs[4], n, tap, row, column);
          sum += sample * value(w, filter, c, r, s);
        }
    y.values[i] = sum;
  }
  return {y};
}

constexpr Entry entries[] = {{"Conv", conv},
                             {"ConvTranspose", conv_transpose},
                             {"LayoutConvert", same_elements},
                             {"DeformConv", deform_conv},
                             {"SeparableConv", separable_conv}};

}  // namespace

std::span<const Entry> conv_entries() { return entries; }

std::function<double(double)> fused_activation(const AttributeList& attributes) {
  const std::string kind = text(attributes, "activation", "none");
  const double alpha = real(attributes, "activation_alpha", 0);
  const double beta = real(attributes, "activation_beta", 0);
  const auto between = [](double low, double v, double high) { return v < low ? low : v > high ? high : v; };
  if (kind == "none") return [](double x) { return x; };
  if (kind == "relu") return [](double x) { return x < 0 ? 0 : x; };
  if (kind == "clip") return [=](double x) { return between(alpha, x, beta); };
  if (kind == "leaky_relu") return [=](double x) { return x < 0 ? alpha * x : x; };
  if (kind == "sigmoid") return [](double x) { return 1 / (1 + std::exp(-x)); };
  if (kind == "silu") return [](double x) { return x / (1 + std::exp(-x)); };
  if (kind == "hard_swish") return [=](double x) { return x * between(0, alpha * x + beta, 1); };
  if (kind == "hard_sigmoid") return [=](double x) { return between(0, alpha * x + beta, 1); };
  throw Error(ErrorKind::invalid_argument, fmt::format("oracle: activation '{}'", kind));
}

}  // namespace lenslet::oracle
