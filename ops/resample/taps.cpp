#include "ops/resample/taps.h"

#include <algorithm>
#include <cmath>

namespace lenslet {
namespace {

using Coordinates = ResizeRule::Coordinates;

/// Where element j of the output lies in the input.
double position(Coordinates coordinates, const ResizedAxis& axis, std::int64_t j) {
  const auto x = static_cast<double>(j), last = static_cast<double>(axis.in - 1);
  const double out = axis.scale * static_cast<double>(axis.in);  // before it was rounded
  switch (coordinates) {
    case Coordinates::half_pixel:
      return (x + 0.5) / axis.scale - 0.5;
    case Coordinates::half_pixel_symmetric: {
      const double moved = static_cast<double>(axis.in) / 2 * (1 - static_cast<double>(axis.out) / out);
      return moved + (x + 0.5) / axis.scale - 0.5;
    }
    case Coordinates::pytorch_half_pixel:
      return axis.out > 1 ? (x + 0.5) / axis.scale - 0.5 : 0;
    case Coordinates::align_corners:
      return out == 1 ? 0 : x * last / (out - 1);
    case Coordinates::asymmetric:
      return x / axis.scale;
    case Coordinates::tf_half_pixel_for_nn:
      return (x + 0.5) / axis.scale;
    case Coordinates::tf_crop_and_resize:
      return out == 1 ? (axis.begin + axis.end) / 2 * last
                      : axis.begin * last + x * (axis.end - axis.begin) * last / (out - 1);
  }
  return 0;
}

double rounded(ResizeRule::Nearest nearest, const ResizedAxis& axis, double x) {
  switch (nearest) {
    case ResizeRule::Nearest::round_prefer_floor:
      return std::ceil(x - 0.5);
    case ResizeRule::Nearest::round_prefer_ceil:
      return std::floor(x + 0.5);
    case ResizeRule::Nearest::floor:
      return std::floor(x);
    case ResizeRule::Nearest::ceil:
      return std::ceil(x);
    case ResizeRule::Nearest::floor_or_ceil:
      return axis.scale < 1 ? std::ceil(x) : std::floor(x);
  }
  return x;
}

/// Weight of an element at that distance: a triangle, or the cubic convolution of R. G. Keys ("Cubic Convolution
/// Interpolation for Digital Image Processing", 1981).
double filter(const ResizeRule& rule, double distance) {
  const double d = std::abs(distance), a = rule.cubic_a;
  if (rule.mode == ResizeRule::Mode::linear) return std::max(0.0, 1 - d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

}  // namespace

AxisTaps::AxisTaps(const ResizeRule& rule, const ResizedAxis& axis) {
  const auto clamped = [&](double i) {
    return static_cast<std::int64_t>(std::clamp(i, 0.0, static_cast<double>(axis.in - 1)));
  };
  // The filter reaches so far in the input; wider where elements fall out and none shall be missed.
  const double stretch = rule.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const double reach = (rule.mode == ResizeRule::Mode::linear ? 1 : 2) / stretch;
  std::vector<double> weights;
  first.reserve(static_cast<std::size_t>(axis.out) + 1);
  first.push_back(0);
  for (std::int64_t j = 0; j < axis.out; ++j, first.push_back(static_cast<std::int64_t>(index.size()))) {
    const double x = position(rule.coordinates, axis, j);
    if (rule.coordinates == Coordinates::tf_crop_and_resize && (x < 0 || x > static_cast<double>(axis.in - 1)))
      continue;
    if (rule.mode == ResizeRule::Mode::nearest) {
      index.push_back(clamped(rounded(rule.nearest, axis, x)));
      weight.push_back(1);
      continue;
    }
    weights.clear();
    double sum = 0;
    for (double i = std::floor(x - reach) + 1; i < x + reach; ++i) {
      const bool outside = i < 0 || i > static_cast<double>(axis.in - 1);
      const double w = rule.exclude_outside && outside ? 0 : filter(rule, stretch * (i - x));
      if (w == 0) continue;
      weights.push_back(w);
      index.push_back(clamped(i));
      sum += w;
    }
    for (const double w : weights) weight.push_back(static_cast<float>(w / sum));
  }
}

std::int64_t AxisTaps::most() const {
  std::int64_t most = 0;
  for (std::size_t j = 1; j < first.size(); ++j) most = std::max(most, first[j] - first[j - 1]);
  return most;
}

}  // namespace lenslet
