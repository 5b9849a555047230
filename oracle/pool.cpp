// References of pooling: every window tap by tap, any number of spatial dimensions.

#include <algorithm>
#include <cmath>
#include <limits>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

struct Axis {
  std::int64_t in, out, kernel, stride, dilation, begin, end;
};

Axis resolve(const AttributeList& attributes, std::size_t i, std::size_t dims, std::int64_t in) {
  const auto list = [&](std::string_view name, std::size_t at, std::int64_t fallback) {
    const std::vector<std::int64_t> values = integers(attributes, name);
    return values.empty() ? fallback : values.at(at);
  };
  Axis a{in, 0, list("kernel_shape", i, 1), list("strides", i, 1), list("dilations", i, 1), 0, 0};
  const std::int64_t extent = a.dilation * (a.kernel - 1) + 1;
  const std::string mode = text(attributes, "auto_pad", "NOTSET");
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    a.out = in / a.stride + (in % a.stride != 0 ? 1 : 0);
    const std::int64_t total = std::max<std::int64_t>(0, (a.out - 1) * a.stride + extent - in);
    const std::int64_t less = total / 2, more = total - less;
    a.begin = mode == "SAME_UPPER" ? less : more;
    a.end = mode == "SAME_UPPER" ? more : less;
    return a;
  }
  if (mode == "NOTSET") {
    a.begin = list("pads", i, 0);
    a.end = list("pads", dims + i, 0);
  }
  const bool ceil = integer(attributes, "ceil_mode", 0) != 0;
  // Counts the windows. Each begins on the image or its leading pad; without ceil_mode each also ends inside.
  for (std::int64_t at = -a.begin;; at += a.stride, ++a.out) {
    if (at + extent <= in + a.end) continue;
    // ceil_mode adds a window beyond the border only if the window before it did not end exactly there.
    const bool exact = at - a.stride + extent == in + a.end;
    if (ceil && !exact && at < in) ++a.out;
    return a;
  }
}

enum class Kind { max, average, lp };

std::vector<Array> pool(const AttributeList& attributes, Inputs inputs, Kind kind) {
  const bool max = kind == Kind::max;
  const auto p = static_cast<double>(integer(attributes, "p", 2));
  const bool column_major = integer(attributes, "storage_order", 0) != 0;
  const Array& x = at(inputs, 0);
  const int rank = x.shape.rank();
  const auto dims = static_cast<std::size_t>(rank - 2);
  const bool with_pads = integer(attributes, "count_include_pad", 0) != 0;
  std::vector<Axis> axes;
  Shape out = x.shape, window = x.shape;
  for (std::size_t i = 0; i < dims; ++i) {
    axes.push_back(resolve(attributes, i, dims, x.shape[static_cast<int>(2 + i)]));
    out = out.with(static_cast<int>(2 + i), axes.back().out);
    window = window.with(static_cast<int>(2 + i), axes.back().kernel);
  }
  window = window.with(0, 1).with(1, 1);
  Array y = sums(out, x.dtype), indices = zeros(out, DType::i64);
  for (std::size_t o = 0; o < y.values.size(); ++o) {
    const Index to = index_of(out, static_cast<std::int64_t>(o));
    // Of a window without taps the least value of the type, as in ONNX Runtime.
    double best = x.dtype == DType::i8 ? -128 : x.dtype == DType::u8 ? 0 : -std::numeric_limits<double>::infinity();
    Sum sum;
    std::int64_t inside = 0, padded = 0;
    for (std::int64_t t = 0; t < window.elems(); ++t) {
      const Index tap = index_of(window, t);
      Index from = to;
      bool on_image = true, on_pads = true;
      for (std::size_t i = 0; i < dims; ++i) {
        const Axis& a = axes[i];
        from[2 + i] = to[2 + i] * a.stride - a.begin + tap[2 + i] * a.dilation;
        on_image = on_image && from[2 + i] >= 0 && from[2 + i] < a.in;
        on_pads = on_pads && from[2 + i] >= -a.begin && from[2 + i] < a.in + a.end;
      }
      padded += on_pads ? 1 : 0;
      if (!on_image) continue;
      const std::int64_t flat = flat_of(x.shape, from);
      const double value = x.values[static_cast<std::size_t>(flat)];
      sum.add(kind == Kind::lp ? std::pow(std::fabs(value), p) : value);
      if (inside++ == 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        std::int64_t number = 0;
        if (column_major)
          for (std::size_t i = dims; i-- > 0;) number = number * axes[i].in + from[2 + i];
        // Images and channels have the same positions in both orders.
        Index plane = from;
        std::fill(plane.begin() + 2, plane.end(), 0);
        indices.values[o] = static_cast<double>(column_major ? flat_of(x.shape, plane) + number : flat);
      }
    }
    const std::int64_t count = with_pads ? padded : inside;
    put(y, o,
        max                ? Scaled{best, std::fabs(best)}
        : kind == Kind::lp ? Scaled{std::pow(sum.value, 1 / p), std::pow(sum.value, 1 / p)}
        : count == 0       ? Scaled{}
                           : Scaled{sum.value / static_cast<double>(count), sum.scale() / static_cast<double>(count)});
  }
  return {y, indices};
}

std::vector<Array> max_pool(const AttributeList& attributes, Inputs inputs) {
  return pool(attributes, inputs, Kind::max);
}
// With `subtract_input` y = residual + scale[c] * (average - x).
std::vector<Array> average_pool(const AttributeList& attributes, Inputs inputs) {
  Array y = pool(attributes, inputs, Kind::average)[0];
  if (integer(attributes, "subtract_input", 0) == 0) return {y};
  const Array& x = at(inputs, 0);
  const std::int64_t plane = x.shape.elems() == 0 ? 1 : x.shape.elems() / (x.shape[0] * x.shape[1]);
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const auto channel = static_cast<std::size_t>(static_cast<std::int64_t>(i) / plane % x.shape[1]);
    const double scale = has(inputs, 1) ? at(inputs, 1).values[channel] : 1;
    Sum sum;
    sum.add(scale * y.values[i], scale * y.scale[i]);
    sum.add(-scale * x.values[i]);
    if (has(inputs, 2)) sum.add(at(inputs, 2).values[i]);
    put(y, i, sum);
  }
  return {y};
}
std::vector<Array> lp_pool(const AttributeList& attributes, Inputs inputs) {
  return {pool(attributes, inputs, Kind::lp)[0]};
}

template <Kind kind>
std::vector<Array> global_pool(const AttributeList& attributes, Inputs inputs) {
  const auto p = static_cast<double>(integer(attributes, "p", 2));
  const Array& x = at(inputs, 0);
  Shape out = x.shape;
  for (int d = 2; d < x.shape.rank(); ++d) out = out.with(d, 1);
  Array y = sums(out, x.dtype);
  const std::size_t area = y.values.empty() ? 0 : x.values.size() / y.values.size();
  for (std::size_t o = 0; o < y.values.size(); ++o) {
    double best = -std::numeric_limits<double>::infinity();
    Sum sum;
    for (std::size_t i = o * area; i < (o + 1) * area; ++i) {
      if (x.values[i] > best || std::isnan(x.values[i])) best = x.values[i];
      sum.add(kind == Kind::lp ? std::pow(std::fabs(x.values[i]), p) : x.values[i]);
    }
    const auto count = static_cast<double>(area);
    put(y, o,
        kind == Kind::max  ? Scaled{best, std::fabs(best)}
        : kind == Kind::lp ? Scaled{std::pow(sum.value, 1 / p), std::pow(sum.value, 1 / p)}
                           : Scaled{sum.value / count, sum.scale() / count});
  }
  return {y};
}

// Each element goes to its index within the unpooled tensor, which then fills the corner of output_shape.
std::vector<Array> max_unpool(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const auto kernel = integers(attributes, "kernel_shape"), strides = integers(attributes, "strides"),
             pads = integers(attributes, "pads");
  Shape unpooled = x.shape;
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const int axis = static_cast<int>(2 + i);
    unpooled = unpooled.with(axis, (x.shape[axis] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + kernel.size()]);
  }
  Array y = zeros(has(inputs, 2) ? Shape(as_integers(at(inputs, 2))) : unpooled, x.dtype);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto index = index_of(unpooled, static_cast<std::int64_t>(at(inputs, 1).values[i]));
    y.values[static_cast<std::size_t>(flat_of(y.shape, index))] = x.values[i];
  }
  return {y};
}

// Adds every element of every column to its pixel; elements outside the image are dropped.
std::vector<Array> col2im(const AttributeList& attributes, Inputs inputs) {
  const Array& x = at(inputs, 0);
  const std::vector<std::int64_t> image = as_integers(at(inputs, 1)), block = as_integers(at(inputs, 2));
  const std::size_t rank = image.size();
  const auto strides = integers(attributes, "strides", std::vector<std::int64_t>(rank, 1));
  const auto dilations = integers(attributes, "dilations", std::vector<std::int64_t>(rank, 1));
  const auto pads = integers(attributes, "pads", std::vector<std::int64_t>(2 * rank, 0));
  const Shape taps{std::span(block)};
  std::vector<std::int64_t> places, dims{x.shape[0], x.shape[1] / taps.elems()};
  for (std::size_t i = 0; i < rank; ++i) {
    // Counts the blocks inside the padded image.
    std::int64_t count = 0;
    while (count * strides[i] + dilations[i] * (block[i] - 1) < image[i] + pads[i] + pads[i + rank]) ++count;
    places.push_back(count);
  }
  dims.insert(dims.end(), image.begin(), image.end());
  Array y = sums(Shape(dims), x.dtype);
  for (std::size_t e = 0; e < x.values.size(); ++e) {
    const auto index = index_of(x.shape, static_cast<std::int64_t>(e));
    const auto tap = index_of(taps, index[1] % taps.elems()), place = index_of(Shape(places), index[2]);
    Index pixel{index[0], index[1] / taps.elems()};
    bool inside = true;
    for (std::size_t i = 0; i < rank; ++i) {
      pixel.push_back(place[i] * strides[i] + tap[i] * dilations[i] - pads[i]);
      inside = inside && pixel.back() >= 0 && pixel.back() < image[i];
    }
    if (!inside) continue;
    const auto to = static_cast<std::size_t>(flat_of(y.shape, pixel));
    y.values[to] += x.values[e];
    y.scale[to] += x.values[e] * x.values[e];
  }
  for (std::size_t i = 0; i < y.values.size(); ++i) put(y, i, Sum{y.values[i], y.scale[i]});
  return {y};
}

constexpr Entry entries[] = {{"MaxPool", max_pool},
                             {"Col2Im", col2im},
                             {"AveragePool", average_pool},
                             {"LpPool", lp_pool},
                             {"MaxUnpool", max_unpool},
                             {"GlobalMaxPool", global_pool<Kind::max>},
                             {"GlobalLpPool", global_pool<Kind::lp>},
                             {"GlobalAveragePool", global_pool<Kind::average>}};

}  // namespace

std::span<const Entry> pool_entries() { return entries; }

}  // namespace lenslet::oracle
