// References of GridSample (ONNX 22), AffineGrid (20) and RoiAlign (22), from the specification and its reference
// implementations.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

/// An element of an axis and its weight in a sample; empty outside the image.
struct Tap {
  std::int64_t place;
  double weight;
};
using Taps = std::vector<Tap>;

/// Calls f(offset of a pixel, its weight) for the tensor product of the taps of all axes.
template <typename F>
void for_each_product(std::span<const Taps> axes, std::span<const std::int64_t> sizes, const F& f,
                      std::int64_t place = 0, double weight = 1) {
  if (axes.empty()) return f(place, weight);
  for (const Tap& tap : axes[0])
    for_each_product(axes.subspan(1), sizes.subspan(1), f, place * sizes[0] + tap.place, weight * tap.weight);
}

/// An axis of the images, and how coordinates of the grid map to it.
class GridAxis {
 public:
  GridAxis(const AttributeList& attributes, std::int64_t size)
      : mode_(text(attributes, "mode", "linear")),
        padding_(text(attributes, "padding_mode", "zeros")),
        size_(size),
        align_(integer(attributes, "align_corners", 0) != 0) {}

  /// Elements and weights of a sample at `coordinate`; a NaN coordinate gives a NaN weight.
  Taps weights(double coordinate) const {
    const auto length = static_cast<double>(size_);
    double x = align_ ? (coordinate + 1) / 2 * (length - 1) : ((coordinate + 1) * length - 1) / 2;
    if (std::isnan(x)) return {{0, x}};
    if (mode_ == "nearest") x = std::rint(x);
    if (x < low() || x > high()) {
      if (padding_ == "border") x = std::clamp(x, 0.0, length - 1);
      if (padding_ == "reflection") x = reflect(x);
    }
    Taps line;
    const double below = std::floor(x);
    if (mode_ == "nearest") add(line, x, 1);
    if (mode_ == "linear") add(line, below, 1 - (x - below)), add(line, below + 1, x - below);
    if (mode_ == "cubic")
      for (double i = below - 1; i <= below + 2; ++i) add(line, i, cubic(std::abs(x - i)));
    return line;
  }
  /// The coordinate in elements, whose magnitude determines the rounding of the position in float32.
  double elements(double coordinate) const { return (std::abs(coordinate) + 1) * static_cast<double>(size_) / 2; }

 private:
  double low() const { return align_ ? 0 : -0.5; }
  double high() const { return static_cast<double>(size_) - (align_ ? 1 : 0.5); }

  double reflect(double x) const {
    const double range = high() - low();
    if (range == 0) return low();
    while (x < low() || x > high()) {
      // Removes whole turns at once: reflection repeats after twice the range.
      if (std::abs(x) > 4 * range + 4) {
        x = low() + std::remainder(x - low(), 2 * range);
        continue;
      }
      x = x < low() ? 2 * low() - x : 2 * high() - x;
    }
    return x;
  }
  static double cubic(double d) {
    constexpr double a = -0.75;
    if (d <= 1) return (a + 2) * d * d * d - (a + 3) * d * d + 1;
    return d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a : 0;
  }
  void add(Taps& line, double i, double weight) const {
    if (weight == 0) return;
    const double last = static_cast<double>(size_ - 1);
    if (i < 0 || i > last) {
      if (padding_ == "zeros") return;
      i = padding_ == "border" ? std::clamp(i, 0.0, last) : reflect(i);
    }
    line.push_back({static_cast<std::int64_t>(i), weight});
  }

  std::string mode_, padding_;
  std::int64_t size_;
  bool align_;
};

std::vector<Array> grid_sample(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &grid = at(inputs, 1);
  const int axes = x.shape.rank() - 2;
  Shape image = x.shape, points = x.shape;  // both begin as [1,1,...]
  for (int i = 0; i < axes; ++i) points = points.with(2 + i, grid.shape[1 + i]);
  Array y = sums(points, x.dtype);
  const std::int64_t channels = x.shape[1], pixels = image.with(0, 1).with(1, 1).elems(),
                     area = points.with(0, 1).with(1, 1).elems();
  const std::span<const std::int64_t> sizes = image.dims().subspan(2);
  std::vector<GridAxis> lines;
  for (const std::int64_t size : sizes) lines.emplace_back(attributes, size);
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t point = 0; point < area; ++point) {
      // The grid stores the last axis first.
      const auto coordinate = [&](int i) {
        return grid.values[static_cast<std::size_t>((n * area + point) * axes + axes - 1 - i)];
      };
      std::vector<Taps> weights;
      for (int i = 0; i < axes; ++i) weights.push_back(lines[static_cast<std::size_t>(i)].weights(coordinate(i)));
      // Samples slightly beside the point along each axis, which show the effect of a rounded position.
      constexpr double aside = 0x1p-16;
      struct Beside {
        std::vector<Taps> weights;
        double elements;
      };
      std::vector<Beside> besides;
      for (int i = 0; i < axes; ++i)
        for (const double step : {-aside, aside}) {
          const GridAxis& line = lines[static_cast<std::size_t>(i)];
          const double length = static_cast<double>(sizes[static_cast<std::size_t>(i)]);
          besides.push_back({weights, line.elements(coordinate(i)) / aside});
          besides.back().weights[static_cast<std::size_t>(i)] = line.weights(coordinate(i) + step * 2 / length);
        }
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* const plane = x.values.data() + (n * channels + c) * pixels;
        const auto sample = [&](const std::vector<Taps>& of) {
          Sum sum;
          for_each_product(of, sizes, [&](std::int64_t pixel, double weight) { sum.add(weight * plane[pixel]); });
          return sum;
        };
        const Sum sum = sample(weights);
        double slopes = 0;
        for (const Beside& beside : besides)
          slopes = std::max(slopes, std::abs(sample(beside.weights).value - sum.value) * beside.elements);
        const double scale = std::isfinite(slopes) ? std::hypot(sum.scale(), slopes) : sum.scale();
        put(y, static_cast<std::size_t>((n * channels + c) * area + point), Scaled{sum.value, scale});
      }
    }
  return {y};
}

/// Coordinate i of `size` points; -1 and 1 are the outermost points or, without align_corners, the borders.
double position(const AttributeList& attributes, std::int64_t i, std::int64_t size) {
  const auto length = static_cast<double>(size), at = static_cast<double>(i);
  if (integer(attributes, "align_corners", 0) != 0) return size == 1 ? -1 : -1 + at * 2 / (length - 1);
  return -1 + 1 / length + at * 2 / length;
}

std::vector<Array> affine_grid(const AttributeList& attributes, Inputs inputs) {
  const Array& theta = at(inputs, 0);
  std::vector<std::int64_t> size = as_integers(at(inputs, 1));
  const std::size_t axes = size.size() - 2;
  size.erase(size.begin() + 1);  // the channels
  size.push_back(static_cast<std::int64_t>(axes));
  Array grid = sums(Shape(size), theta.dtype);
  for (std::size_t i = 0; i < grid.values.size(); ++i) {
    const Index index = index_of(grid.shape, static_cast<std::int64_t>(i));
    const auto row = static_cast<std::size_t>(index[0]) * axes + static_cast<std::size_t>(index.back());
    const double* factors = theta.values.data() + row * (axes + 1);
    Sum sum;
    sum.add(factors[axes]);
    for (std::size_t a = 0; a < axes; ++a)  // x belongs to the last axis; a position is a sum of numbers up to 1
      sum.add(factors[a] * position(attributes, index[axes - a], size[axes - a]), factors[a]);
    put(grid, i, sum);
  }
  return {grid};
}

/// A bin of a box along an axis.
struct Bin {
  std::vector<Taps> samples;  ///< elements and weights of each sample; empty outside the image
  double elements = 0;        ///< the largest coordinate, which determines the rounding in float32
};

Bin bin_of(const AttributeList& attributes, double low, double high, std::int64_t bins, std::int64_t bin,
           std::int64_t size) {
  const bool half_pixel = text(attributes, "coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = real(attributes, "spatial_scale", 1), offset = half_pixel ? 0.5 : 0;
  const double start = low * scale - offset, end = high * scale - offset;
  const double length = half_pixel ? end - start : std::max(end - start, 1.0), bin_size = length / double(bins);
  const std::int64_t ratio = integer(attributes, "sampling_ratio", 0);
  const auto count = ratio > 0 ? ratio : static_cast<std::int64_t>(std::max(0.0, std::ceil(bin_size)));
  Bin result;
  result.elements = std::max({1.0, std::abs(start), std::abs(end)});
  for (std::int64_t i = 0; i < count; ++i) {
    double x = start + double(bin) * bin_size + (double(i) + 0.5) * bin_size / double(count);
    Taps& line = result.samples.emplace_back();
    if (x < -1 || x > double(size)) continue;
    x = std::clamp(x, 0.0, double(size - 1));
    const auto below = static_cast<std::int64_t>(x);
    const double rest = x - double(below);
    line.push_back({below, 1 - rest});
    if (rest > 0) line.push_back({below + 1, rest});
  }
  return result;
}

std::vector<Array> roi_align(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &boxes = at(inputs, 1), &images = at(inputs, 2);
  const std::int64_t channels = x.shape[1], sizes[] = {x.shape[2], x.shape[3]};
  const std::int64_t rows = integer(attributes, "output_height", 1), columns = integer(attributes, "output_width", 1);
  const bool max = text(attributes, "mode", "avg") == "max";
  Array y = sums({boxes.shape[0], channels, rows, columns}, x.dtype);
  for (std::int64_t box = 0; box < boxes.shape[0]; ++box)
    for (std::int64_t bin = 0; bin < rows * columns; ++bin) {
      const double* corners = boxes.values.data() + 4 * box;
      const auto image = static_cast<std::int64_t>(images.values[static_cast<std::size_t>(box)]);
      const Bin down = bin_of(attributes, corners[1], corners[3], rows, bin / columns, sizes[0]);
      const Bin along = bin_of(attributes, corners[0], corners[2], columns, bin % columns, sizes[1]);
      const double count = std::max(1.0, double(down.samples.size()) * double(along.samples.size()));
      for (std::int64_t c = 0; c < channels; ++c) {
        const double* plane = x.values.data() + (image * channels + c) * sizes[0] * sizes[1];
        Sum sum;
        double most = down.samples.empty() || along.samples.empty() ? 0 : -std::numeric_limits<double>::infinity();
        double slopes = 0, steepest = 0;
        for (const Taps& row : down.samples)
          for (const Taps& column : along.samples) {
            // The maximum is over the weighted pixels, four a sample. Missing ones count as 0.
            double largest = -std::numeric_limits<double>::infinity(), high = largest, low = -largest;
            int products = 0;
            const Taps taps[] = {row, column};
            for_each_product(taps, sizes, [&](std::int64_t pixel, double weight) {
              if (weight == 0) return;
              sum.add(weight * plane[pixel]);
              largest = std::max(largest, weight * plane[pixel]);
              high = std::max(high, plane[pixel]);
              low = std::min(low, plane[pixel]);
              ++products;
            });
            most = std::max({most, largest, products < 4 ? 0.0 : largest});
            if (products == 0) continue;
            // Slope by the position: for the mean a difference of pixels, for the maximum also a pixel itself.
            const double slope = max ? std::max(std::abs(high), std::abs(low)) : high - low;
            slopes += slope;
            steepest = std::max(steepest, slope);
          }
        const double elements = std::max(down.elements, along.elements);
        const auto to = static_cast<std::size_t>((box * channels + c) * rows * columns + bin);
        put(y, to,
            max ? Scaled{most, std::hypot(most, steepest * elements)}
                : Scaled{sum.value / count, std::hypot(sum.scale(), slopes * elements) / count});
      }
    }
  return {y};
}

// The box with ordered corners.
std::array<double, 4> corners(const double* box, bool centre) {
  if (centre) return {box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2};
  return {std::min(box[0], box[2]), std::min(box[1], box[3]), std::max(box[0], box[2]), std::max(box[1], box[3])};
}

double overlap(const std::array<double, 4>& a, const std::array<double, 4>& b) {
  const auto area = [](const std::array<double, 4>& box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  const std::array<double, 4> both = {std::max(a[0], b[0]), std::max(a[1], b[1]), std::min(a[2], b[2]),
                                      std::min(a[3], b[3])};
  if (both[0] >= both[2] || both[1] >= both[3]) return 0;
  return area(both) / (area(a) + area(b) - area(both));
}

std::vector<Array> non_max_suppression(const AttributeList& attributes, Inputs inputs) {
  const Array &boxes = at(inputs, 0), &scores = at(inputs, 1);
  const bool centre = integer(attributes, "center_point_box", 0) != 0;
  const double most = has(inputs, 2) ? inputs[2].values[0] : 0, threshold = has(inputs, 3) ? inputs[3].values[0] : 0;
  const std::int64_t count = scores.shape[2];
  std::vector<double> taken;
  for (std::int64_t image = 0; image < scores.shape[0]; ++image)
    for (std::int64_t c = 0; c < scores.shape[1]; ++c) {
      const double* score = scores.values.data() + (image * scores.shape[1] + c) * count;
      const auto box = [&](std::int64_t i) { return corners(boxes.values.data() + (image * count + i) * 4, centre); };
      std::vector<std::int64_t> left, kept;
      for (std::int64_t i = 0; i < count; ++i)
        if (!has(inputs, 4) || score[i] > inputs[4].values[0]) left.push_back(i);
      while (!left.empty() && static_cast<double>(kept.size()) < most) {
        const std::int64_t best =
            *std::max_element(left.begin(), left.end(), [&](auto a, auto b) { return score[a] < score[b]; });
        kept.push_back(best);
        std::erase_if(left, [&](auto i) { return i == best || overlap(box(best), box(i)) > threshold; });
        for (const double index : {double(image), double(c), double(best)}) taken.push_back(index);
      }
    }
  Array y = zeros({static_cast<std::int64_t>(taken.size()) / 3, 3}, DType::i64);
  y.values = taken;
  return {y};
}

constexpr Entry entries[] = {{"GridSample", grid_sample},
                             {"AffineGrid", affine_grid},
                             {"RoiAlign", roi_align},
                             {"NonMaxSuppression", non_max_suppression}};

}  // namespace

std::span<const Entry> grid_entries() { return entries; }

}  // namespace lenslet::oracle
