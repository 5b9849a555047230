#include "ops/resample/taps.h"

#include <algorithm>
#include <cmath>

namespace lenslet {
namespace {

using Coordinates = ResizeRule::Coordinates;

/// The input coordinate of output element j.
template <typename Real>
Real position(Coordinates coordinates, const ResizedAxis& axis, std::int64_t j) {
  constexpr Real half = Real{1} / 2;
  const auto x = static_cast<Real>(j), last = static_cast<Real>(axis.in - 1), scale = static_cast<Real>(axis.scale);
  const Real out = scale * static_cast<Real>(axis.in);  // before it was rounded
  switch (coordinates) {
    case Coordinates::half_pixel:
      return (x + half) / scale - half;
    case Coordinates::half_pixel_symmetric:  // ONNX's formula, by one quotient: ties stay exact
      return static_cast<Real>(axis.in - 1) / 2 + (x + half - static_cast<Real>(axis.out) / 2) / scale;
    case Coordinates::pytorch_half_pixel:
      return axis.out > 1 ? (x + half) / scale - half : 0;
    case Coordinates::align_corners:
      return out == 1 ? 0 : x * last / (out - 1);
    case Coordinates::asymmetric:
      return x / scale;
    case Coordinates::tf_half_pixel_for_nn:
      return (x + half) / scale;
    case Coordinates::tf_crop_and_resize: {
      const auto begin = static_cast<Real>(axis.begin), end = static_cast<Real>(axis.end);
      return out == 1 ? (begin + end) / 2 * last : begin * last + x * (end - begin) * last / (out - 1);
    }
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

/// The weight of an element at that distance: triangle, or R. G. Keys' cubic convolution ("Cubic Convolution
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
  // The filter's reach in the input; wider where excluded elements must not be missed.
  const double stretch = rule.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const double reach = (rule.mode == ResizeRule::Mode::linear ? 1 : 2) / stretch;
  std::vector<double> weights;
  first.reserve(static_cast<std::size_t>(axis.out) + 1);
  first.push_back(0);
  for (std::int64_t j = 0; j < axis.out; ++j, first.push_back(static_cast<std::int64_t>(index.size()))) {
    const auto x = position<double>(rule.coordinates, axis, j);
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

std::vector<LinearTap> linear_taps(const ResizeRule& rule, const ResizedAxis& axis, bool blended) {
  const auto float_position = [&](std::int64_t j) -> float {
    if (!axis.changes) return static_cast<float>(j);
    if (rule.coordinates != Coordinates::half_pixel_symmetric) return position<float>(rule.coordinates, axis, j);
    const auto in = static_cast<float>(axis.in), scale = static_cast<float>(axis.scale);  // the rest in double
    const double adjusted = static_cast<double>(static_cast<float>(axis.out) / (scale * in));
    const double moved = static_cast<double>(axis.in) / 2 * (1 - adjusted);
    return static_cast<float>(moved + (static_cast<double>(j) + 0.5) / static_cast<double>(scale) - 0.5);
  };
  std::vector<LinearTap> taps;
  const std::int64_t last = axis.in - 1;
  for (std::int64_t j = 0; j < axis.out; ++j) {
    if (!blended) {
      taps.push_back({.low = j, .high = j, .of_low = 1, .of_high = 0});
      continue;
    }
    const float x = std::clamp(float_position(j), 0.0F, static_cast<float>(last));
    const std::int64_t low = std::min(static_cast<std::int64_t>(x), last), high = std::min(low + 1, last);
    if (low == high)
      taps.push_back({.low = low, .high = high, .of_low = 0.5F, .of_high = 0.5F});
    else
      taps.push_back(
          {.low = low, .high = high, .of_low = static_cast<float>(high) - x, .of_high = x - static_cast<float>(low)});
  }
  return taps;
}

std::int64_t AxisTaps::most() const {
  std::int64_t most = 0;
  for (std::size_t j = 1; j < first.size(); ++j) most = std::max(most, first[j] - first[j - 1]);
  return most;
}

}  // namespace lenslet
