// Reference of Resize: each axis as a matrix [out, in], from the formulas of ONNX's Resize-19.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

struct Axis {
  std::int64_t in, out;
  double scale, start = 0, end = 1;
};

template <typename Real>
Real original(const std::string& mode, const Axis& a, Real x) {
  const auto in = static_cast<Real>(a.in), out = static_cast<Real>(a.out), scale = static_cast<Real>(a.scale);
  const Real resized = scale * in, half = Real{1} / 2;
  if (mode == "half_pixel") return (x + half) / scale - half;
  // in / 2 * (1 - out / resized) + (x + half) / scale - half, exact where the result is an integer or half of one
  if (mode == "half_pixel_symmetric") return (in - 1) / 2 + (x + half - out / 2) / scale;
  if (mode == "pytorch_half_pixel") return a.out > 1 ? (x + half) / scale - half : 0;
  if (mode == "align_corners") return resized == 1 ? 0 : x * (in - 1) / (resized - 1);
  if (mode == "asymmetric") return x / scale;
  if (mode == "tf_half_pixel_for_nn") return (x + half) / scale;
  if (mode == "tf_crop_and_resize") {
    const auto start = static_cast<Real>(a.start), end = static_cast<Real>(a.end);
    return resized == 1 ? half * (start + end) * (in - 1)
                        : start * (in - 1) + x * (end - start) * (in - 1) / (resized - 1);
  }
  throw Error(ErrorKind::invalid_argument, "oracle: coordinates " + mode);
}

double nearest(const std::string& mode, const Axis& a, double x) {
  const double down = std::floor(x);
  if (mode == "floor" || x == down) return down;
  if (mode == "floor_or_ceil") return a.scale < 1 ? down + 1 : down;  // opset 10: the node test case of ONNX 1.5
  if (mode == "ceil") return down + 1;
  if (mode == "round_prefer_floor") return x - down <= 0.5 ? down : down + 1;
  return x - down < 0.5 ? down : down + 1;
}

struct Tap {
  std::int64_t place;
  double weight;
};

/// Elements and weights for output x of a line; empty outside the input.
std::vector<Tap> weights(const AttributeList& attributes, const Axis& a, double x) {
  const std::string mode = text(attributes, "mode", "nearest");
  const std::string coordinates = text(attributes, "coordinate_transformation_mode", "half_pixel");
  const double at = original(coordinates, a, x);
  if (coordinates == "tf_crop_and_resize" && (at < 0 || at > static_cast<double>(a.in - 1))) return {};
  const auto place = [&](double i) {
    return static_cast<std::int64_t>(std::clamp(i, 0.0, static_cast<double>(a.in - 1)));
  };
  if (mode == "nearest") return {{place(nearest(text(attributes, "nearest_mode", "round_prefer_floor"), a, at)), 1}};
  const double alpha = real(attributes, "cubic_coeff_a", -0.75);
  const auto kernel = [&](double d) {
    d = std::abs(d);
    if (mode == "linear") return d < 1 ? 1 - d : 0.0;
    if (d <= 1) return (alpha + 2) * d * d * d - (alpha + 3) * d * d + 1;
    return d < 2 ? alpha * d * d * d - 5 * alpha * d * d + 8 * alpha * d - 4 * alpha : 0.0;
  };
  const double squeeze = integer(attributes, "antialias", 0) != 0 && a.scale < 1 ? a.scale : 1;
  const double far = std::ceil((mode == "linear" ? 1 : 2) / squeeze) + 1;
  std::vector<Tap> taps;
  double sum = 0;
  for (double i = std::floor(at) - far; i <= std::floor(at) + far; ++i) {
    if (integer(attributes, "exclude_outside", 0) != 0 && (i < 0 || i >= static_cast<double>(a.in))) continue;
    const double weight = kernel(squeeze * (i - at));
    if (weight == 0) continue;
    sum += weight;
    taps.push_back({place(i), weight});
  }
  for (Tap& tap : taps) tap.weight /= sum;
  return taps;
}

std::vector<Axis> axes_of(const AttributeList& attributes, Inputs inputs) {
  const Shape& x = at(inputs, 0).shape;
  std::vector<Axis> all;
  for (const std::int64_t dim : x.dims()) all.push_back({dim, dim, 1});
  std::vector<std::int64_t> named = integers(attributes, "axes");
  if (named.empty()) {
    named.resize(all.size());
    std::iota(named.begin(), named.end(), std::int64_t{0});
  }
  const auto of = [&](std::size_t i) -> Axis& { return all[static_cast<std::size_t>(axis_of(named[i], x.rank()))]; };
  const auto values = [&](std::size_t i) { return has(inputs, i) ? inputs[i].values : std::vector<double>(); };
  std::vector<double> scales = values(inputs.size() == 2 ? 1 : 2), sizes, roi;
  if (inputs.size() > 2) sizes = values(3), roi = values(1);
  for (const auto& [name, value] : attributes)
    if (name == "scales") scales = std::get<std::vector<double>>(value);
  for (std::size_t i = 0; i < named.size(); ++i) {
    Axis& a = of(i);
    a.scale = sizes.empty() ? scales.at(i) : sizes.at(i) / static_cast<double>(a.in);
    a.out = static_cast<std::int64_t>(sizes.empty() ? std::floor(static_cast<float>(a.in) * static_cast<float>(a.scale))
                                                    : sizes.at(i));
    if (!roi.empty()) a.start = roi.at(i), a.end = roi.at(i + named.size());
  }
  const std::string policy = text(attributes, "keep_aspect_ratio_policy", "stretch");
  if (sizes.empty() || policy == "stretch") return all;
  double scale = of(0).scale;
  for (std::size_t i = 1; i < named.size(); ++i)
    scale = policy == "not_larger" ? std::min(scale, of(i).scale) : std::max(scale, of(i).scale);
  for (std::size_t i = 0; i < named.size(); ++i) {
    of(i).scale = scale;
    of(i).out = static_cast<std::int64_t>(std::floor(scale * static_cast<double>(of(i).in) + 0.5));
  }
  return all;
}

/// ONNX leaves the rounding of integers open: this is ONNX Runtime's float32, truncated. An element sums the corners of
/// its cell, the last axis fastest, each times the product of its weights, the last axis first.
Array linear_integers(const AttributeList& attributes, const Array& x, const std::vector<Axis>& axes) {
  struct Cell {
    std::int64_t low, high;
    float of_low, of_high;
  };
  const std::string coordinates = text(attributes, "coordinate_transformation_mode", "half_pixel");
  const auto stays = [](const Axis& a) { return a.in == a.out && a.scale == 1; };
  const auto from = [&](const Axis& a, std::int64_t j) {
    if (stays(a)) return static_cast<float>(j);
    if (coordinates != "half_pixel_symmetric") return original(coordinates, a, static_cast<float>(j));
    const auto scale = static_cast<float>(a.scale);  // ONNX Runtime computes in double after the first quotient
    const auto part = static_cast<double>(static_cast<float>(a.out) / (scale * static_cast<float>(a.in)));
    return static_cast<float>(static_cast<double>(a.in) / 2 * (1 - part) +
                              (static_cast<double>(j) + 0.5) / static_cast<double>(scale) - 0.5);
  };
  // All axes of an image or volume share one sum, unless an axis before them changes.
  const int rank = x.shape.rank(), own = rank == 2 || rank == 4 ? 2 : rank == 3 || rank == 5 ? 3 : 0;
  const bool before = std::any_of(axes.begin(), axes.end() - own, [&](const Axis& a) { return !stays(a); });
  Shape shape = x.shape;
  std::vector<std::vector<Cell>> cells;  // by axis; empty: the axis is copied
  for (int d = 0; d < rank; ++d) {
    const Axis& a = axes[static_cast<std::size_t>(d)];
    shape = shape.with(d, a.out);
    cells.emplace_back();
    if (stays(a) && (before || d < rank - own)) continue;
    for (std::int64_t j = 0; j < a.out; ++j) {
      const auto last = static_cast<float>(a.in - 1);
      const float at = std::min(last, std::max(0.0F, from(a, j)));
      const float low = std::min(last, std::floor(at)), high = std::min(last, low + 1);
      cells.back().push_back({static_cast<std::int64_t>(low), static_cast<std::int64_t>(high),
                              low == high ? 0.5F : high - at, low == high ? 0.5F : at - low});
    }
  }
  const auto factor = static_cast<float>(real(attributes, "code_factor", 0));
  const std::vector<std::int64_t> range = integers(attributes, "stored_range", {0, 0});
  Array y = zeros(shape, x.dtype);
  Index index;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const Index at = index_of(shape, static_cast<std::int64_t>(i));
    index = at;
    float sum = 0;
    std::vector<float> weights(cells.size(), 1.0F);
    const auto corners = [&](const auto& self, std::size_t d) -> void {
      if (d == cells.size()) {
        float weight = 1;
        for (std::size_t axis = d; axis-- > 0;) weight *= weights[axis];
        sum += weight * static_cast<float>(x.values[static_cast<std::size_t>(flat_of(x.shape, index))]);
        return;
      }
      if (cells[d].empty()) return self(self, d + 1);
      const Cell& cell = cells[d][static_cast<std::size_t>(at[d])];
      index[d] = cell.low;
      weights[d] = cell.of_low;
      self(self, d + 1);
      index[d] = cell.high;
      weights[d] = cell.of_high;
      self(self, d + 1);
    };
    corners(corners, 0);
    y.values[i] = std::trunc(static_cast<double>(sum));
    if (factor == 0) continue;
    // Of codes: the code of the blended number, in float32.
    const float step = (sum - static_cast<float>(integer(attributes, "x_zero_point", 0))) * factor;
    const double code =
        std::nearbyint(static_cast<double>(step)) + static_cast<double>(integer(attributes, "y_zero_point", 0));
    y.values[i] = std::clamp(code, static_cast<double>(range.at(0)), static_cast<double>(range.at(1)));
  }
  if (factor != 0) y.dtype = text(attributes, "stored_type", "uint8") == "int8" ? DType::i8 : DType::u8;
  return y;
}

std::vector<Array> resize(const AttributeList& attributes, Inputs inputs) {
  Array x = at(inputs, 0);
  const double beyond = real(attributes, "extrapolation_value", 0);
  const std::vector<Axis> axes = axes_of(attributes, inputs);
  if (is_integer(x.dtype) && text(attributes, "mode", "nearest") == "linear" && !x.values.empty())
    return {linear_integers(attributes, x, axes)};
  for (int d = 0; d < x.shape.rank(); ++d) {
    const Axis& a = axes[static_cast<std::size_t>(d)];
    if (a.in == a.out && a.scale == 1 && a.start == 0 && a.end == 1) continue;  // copied, whatever the formula
    Array y = sums(x.shape.with(d, a.out), x.dtype);
    std::vector<std::vector<Tap>> taps;  // by output element
    for (std::int64_t j = 0; j < a.out; ++j) taps.push_back(weights(attributes, a, static_cast<double>(j)));
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      Index index = index_of(y.shape, static_cast<std::int64_t>(i));
      const auto at_axis = static_cast<std::size_t>(d), j = static_cast<std::size_t>(index[at_axis]);
      Sum sum;
      if (taps[j].empty()) sum.add(beyond);
      for (const auto& [place, weight] : taps[j]) {
        index[at_axis] = place;
        const auto from = static_cast<std::size_t>(flat_of(x.shape, index));
        sum.add(weight * x.values[from], weight * (x.scale.empty() ? x.values[from] : x.scale[from]));
      }
      put(y, i, sum);
    }
    x = std::move(y);
  }
  return {x};
}

constexpr Entry entries[] = {{"Resize", resize}, {"Upsample", resize}};

}  // namespace

std::span<const Entry> resize_entries() { return entries; }

}  // namespace lenslet::oracle
