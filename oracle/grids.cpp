// References of GridSample, AffineGrid and RoiAlign, from the text of ONNX's versions 22, 20 and 22 and their reference
// implementations.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lenslet/error.h"
#include "oracle/families.h"

namespace lenslet::oracle {

namespace {

/// An axis of the images, and how a coordinate of the grid lies on it.
class GridAxis {
 public:
  GridAxis(const AttributeList& attributes, std::int64_t size)
      : mode_(text(attributes, "mode", "linear")),
        padding_(text(attributes, "padding_mode", "zeros")),
        size_(size),
        align_(integer(attributes, "align_corners", 0) != 0) {}

  /// What each element of the axis contributes at `coordinate`.
  std::vector<double> weights(double coordinate) const {
    const auto length = static_cast<double>(size_);
    double x = align_ ? (coordinate + 1) / 2 * (length - 1) : ((coordinate + 1) * length - 1) / 2;
    if (std::isnan(x)) return std::vector<double>(static_cast<std::size_t>(size_), x);
    if (mode_ == "nearest") x = std::rint(x);
    if (x < low() || x > high()) {
      if (padding_ == "border") x = std::clamp(x, 0.0, length - 1);
      if (padding_ == "reflection") x = reflect(x);
    }
    std::vector<double> line(static_cast<std::size_t>(size_));
    const double below = std::floor(x);
    if (mode_ == "nearest") add(line, x, 1);
    if (mode_ == "linear") add(line, below, 1 - (x - below)), add(line, below + 1, x - below);
    if (mode_ == "cubic")
      for (double i = below - 1; i <= below + 2; ++i) add(line, i, cubic(std::abs(x - i)));
    return line;
  }

 private:
  double low() const { return align_ ? 0 : -0.5; }
  double high() const { return static_cast<double>(size_) - (align_ ? 1 : 0.5); }

  double reflect(double x) const {
    const double range = high() - low();
    if (range == 0) return low();
    while (x < low() || x > high()) {
      // Whole turns at once: the path back and forth repeats after twice the range.
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
  void add(std::vector<double>& line, double i, double weight) const {
    const double last = static_cast<double>(size_ - 1);
    if (i < 0 || i > last) {
      if (padding_ == "zeros") return;
      i = padding_ == "border" ? std::clamp(i, 0.0, last) : reflect(i);
    }
    line[static_cast<std::size_t>(i)] += weight;
  }

  std::string mode_, padding_;
  std::int64_t size_;
  bool align_;
};

std::vector<Array> grid_sample(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &grid = at(inputs, 1);
  const int axes = x.shape.rank() - 2;
  Shape image = x.shape, points = x.shape;  // [1,1,...] of either
  for (int i = 0; i < axes; ++i) points = points.with(2 + i, grid.shape[1 + i]);
  Array y = zeros(points, x.dtype);
  image = image.with(0, 1).with(1, 1);
  points = points.with(0, 1).with(1, 1);
  const std::int64_t channels = x.shape[1], pixels = image.elems(), area = points.elems();
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t point = 0; point < area; ++point) {
      // The grid names the last axis first.
      std::vector<std::vector<double>> weights;
      for (int i = 0; i < axes; ++i)
        weights.push_back(
            GridAxis(attributes, image[2 + i])
                .weights(grid.values[static_cast<std::size_t>((n * area + point) * axes + axes - 1 - i)]));
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
          double weight = 1;
          std::int64_t rest = pixel;
          for (int i = axes - 1; i >= 0; --i) {
            weight *= weights[static_cast<std::size_t>(i)][static_cast<std::size_t>(rest % image[2 + i])];
            rest /= image[2 + i];
          }
          if (weight != 0) sum += weight * x.values[static_cast<std::size_t>((n * channels + c) * pixels + pixel)];
        }
        y.values[static_cast<std::size_t>((n * channels + c) * area + point)] = sum;
      }
    }
  return {y};
}

/// Coordinate i of `size` points from -1 to 1: their centres, or the outermost ones there.
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
  Array grid = zeros(Shape(size), theta.dtype);
  for (std::size_t i = 0; i < grid.values.size(); ++i) {
    const std::vector<std::int64_t> index = index_of(grid.shape, static_cast<std::int64_t>(i));
    const auto row = static_cast<std::size_t>(index[0]) * axes + static_cast<std::size_t>(index.back());
    const double* factors = theta.values.data() + row * (axes + 1);
    double sum = factors[axes];
    for (std::size_t a = 0; a < axes; ++a)  // x belongs to the last axis
      sum += factors[a] * position(attributes, index[axes - a], size[axes - a]);
    grid.values[i] = sum;
  }
  return {grid};
}

/// What elements of an axis contribute to each sample of a bin of a box; beyond the image: nothing.
std::vector<std::vector<double>> bin_samples(const AttributeList& attributes, double low, double high,
                                             std::int64_t bins, std::int64_t bin, std::int64_t size) {
  const bool half_pixel = text(attributes, "coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = real(attributes, "spatial_scale", 1), offset = half_pixel ? 0.5 : 0;
  const double start = low * scale - offset, end = high * scale - offset;
  const double length = half_pixel ? end - start : std::max(end - start, 1.0), bin_size = length / double(bins);
  const std::int64_t ratio = integer(attributes, "sampling_ratio", 0);
  const auto count = ratio > 0 ? ratio : static_cast<std::int64_t>(std::max(0.0, std::ceil(bin_size)));
  std::vector<std::vector<double>> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    double x = start + double(bin) * bin_size + (double(i) + 0.5) * bin_size / double(count);
    std::vector<double>& line = samples.emplace_back(static_cast<std::size_t>(size));
    if (x < -1 || x > double(size)) continue;
    x = std::clamp(x, 0.0, double(size - 1));
    const auto below = static_cast<std::size_t>(x);
    line[below] = 1 - (x - double(below));
    if (below + 1 < line.size()) line[below + 1] = x - double(below);
  }
  return samples;
}

std::vector<Array> roi_align(const AttributeList& attributes, Inputs inputs) {
  const Array &x = at(inputs, 0), &boxes = at(inputs, 1), &images = at(inputs, 2);
  const std::int64_t height = x.shape[2], width = x.shape[3];
  Array y = zeros(
      {boxes.shape[0], x.shape[1], integer(attributes, "output_height", 1), integer(attributes, "output_width", 1)},
      x.dtype);
  for (std::size_t at_y = 0; at_y < y.values.size(); ++at_y) {
    const std::vector<std::int64_t> i = index_of(y.shape, static_cast<std::int64_t>(at_y));
    const double* box = boxes.values.data() + 4 * i[0];
    const auto image = static_cast<std::int64_t>(images.values[static_cast<std::size_t>(i[0])]);
    const double* plane = x.values.data() + (image * x.shape[1] + i[1]) * height * width;
    const auto down = bin_samples(attributes, box[1], box[3], y.shape[2], i[2], height);
    const auto along = bin_samples(attributes, box[0], box[2], y.shape[3], i[3], width);
    double sum = 0, most = down.empty() || along.empty() ? 0 : -std::numeric_limits<double>::infinity();
    for (const std::vector<double>& row : down)
      for (const std::vector<double>& column : along) {
        // The largest is that of the products, four a sample, some of which may be 0; beyond the image all are.
        double largest = -std::numeric_limits<double>::infinity();
        int products = 0;
        for (std::int64_t h = 0; h < height; ++h)
          for (std::int64_t w = 0; w < width; ++w) {
            const double weight = row[static_cast<std::size_t>(h)] * column[static_cast<std::size_t>(w)];
            if (weight == 0) continue;
            sum += weight * plane[h * width + w];
            largest = std::max(largest, weight * plane[h * width + w]);
            ++products;
          }
        most = std::max({most, largest, products < 4 ? 0.0 : largest});
      }
    const double count = std::max(1.0, double(down.size()) * double(along.size()));
    y.values[at_y] = text(attributes, "mode", "avg") == "max" ? most : sum / count;
  }
  return {y};
}

// Corners, smaller coordinates first.
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
