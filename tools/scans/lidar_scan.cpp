#include "tools/scans/lidar_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "lenslet/error.h"

namespace lenslet::tool {

namespace {

constexpr double sensor_height = 1.73, most_range = 100, range_noise = 0.02, lost = 0.1;
constexpr double sweep_metres = 1, sweep_seconds = 0.1;
constexpr double lowest = -24.8, highest = 2;  // degrees

/// Uniform in [low, high), the same on every machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  double operator()(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_() >> 11U) * 0x1p-53);
  }
  /// Approximately normal, mean 0 and deviation 1: a sum of twelve uniform values.
  double noise() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += (*this)(0, 1);
    return sum;
  }

 private:
  std::mt19937_64 engine_;
};

struct Ray {
  double x, y, z;     // origin
  double dx, dy, dz;  // unit vector
};

/// An upright box on the ground (z = 0), rotated about z.
struct Box {
  double x, y;  // its centre
  double length, width, height;
  double cosine, sine;
  double reflectance;

  /// Distance along the ray at which it enters the box; infinity if it misses.
  double met(const Ray& ray) const {
    const double x0 = ray.x - x, y0 = ray.y - y;
    double first = 0, last = std::numeric_limits<double>::infinity();
    const auto slab = [&](double from, double along, double low, double high) {
      if (along == 0) {
        if (from < low || from > high) last = -1;
        return;
      }
      const double a = (low - from) / along, b = (high - from) / along;
      first = std::max(first, std::min(a, b));
      last = std::min(last, std::max(a, b));
    };
    slab(cosine * x0 + sine * y0, cosine * ray.dx + sine * ray.dy, -length / 2, length / 2);
    slab(cosine * y0 - sine * x0, cosine * ray.dy - sine * ray.dx, -width / 2, width / 2);
    slab(ray.z, ray.dz, 0, height);
    return first < last && first > 0 ? first : std::numeric_limits<double>::infinity();
  }
};

std::vector<Box> draw_street(Draw& draw) {
  std::vector<Box> boxes;
  const auto add = [&](double x, double y, double length, double width, double height, double angle) {
    boxes.push_back({x, y, length, width, height, std::cos(angle), std::sin(angle), draw(0.1, 0.9)});
  };
  for (const double side : {-1.0, 1.0}) {
    // Facades, with gaps where streets cross and between houses.
    for (double x = -most_range; x < most_range;) {
      const double length = draw(8, 25), back = draw(0, 4);
      add(x + length / 2, side * (draw(9, 12) + back + 5), length, 10, draw(6, 18), 0);
      x += length + (draw(0, 1) < 0.25 ? draw(4, 14) : 0);
    }
    for (double x = -most_range; x < most_range; x += draw(5.5, 16))  // parked
      add(x, side * draw(5.6, 6.2), draw(3.6, 5), draw(1.6, 1.95), draw(1.4, 1.9), draw(-0.05, 0.05));
    for (double x = -most_range + draw(0, 20); x < most_range; x += draw(15, 25))  // lamps and trees
      add(x, side * draw(7.4, 7.8), draw(0.15, 0.4), draw(0.15, 0.4), draw(3, 8), 0);
    for (double x = -most_range; x < most_range; x += draw(8, 30))  // people
      add(x, side * draw(7, 8.5), draw(0.3, 0.6), draw(0.4, 0.6), draw(1.5, 1.95), draw(0, std::numbers::pi));
    for (double x = -most_range; x < most_range; x += draw(15, 60))  // driving; none at the sensor's position
      if (std::abs(x) > 6) add(x, side * draw(1.6, 2.4), draw(3.6, 9), draw(1.7, 2.5), draw(1.4, 3.2), draw(-0.1, 0.1));
  }
  return boxes;
}

}  // namespace

Tensor lidar_scan(const ScanOptions& options) {
  constexpr std::int64_t most_shots = std::int64_t{1} << 26;
  if (options.rings < 1 || options.steps < 1 || options.sweeps < 1)
    throw Error(ErrorKind::invalid_argument, "a scan has at least one ring, one step and one sweep");
  if (options.columns != 4 && options.columns != 5)
    throw Error(ErrorKind::invalid_argument, fmt::format("points have 4 or 5 columns, not {}", options.columns));
  if (options.rings > most_shots / options.steps / options.sweeps)
    throw Error(ErrorKind::invalid_argument, fmt::format("{} rings of {} steps in {} sweeps are more than 2^26 shots",
                                                         options.rings, options.steps, options.sweeps));
  Draw draw(options.seed);
  const std::vector<Box> street = draw_street(draw);
  constexpr double radian = std::numbers::pi / 180;
  std::vector<float> points;
  for (int sweep = 0; sweep < options.sweeps; ++sweep) {
    const int before = options.sweeps - 1 - sweep;
    for (int ring = 0; ring < options.rings; ++ring) {
      const double share = options.rings == 1 ? 0 : static_cast<double>(ring) / (options.rings - 1);
      const double elevation = (lowest + (highest - lowest) * share) * radian;
      for (int step = 0; step < options.steps; ++step) {
        const double azimuth = 2 * std::numbers::pi * step / options.steps;
        const Ray ray{-before * sweep_metres,
                      0,
                      sensor_height,
                      std::cos(elevation) * std::cos(azimuth),
                      std::cos(elevation) * std::sin(azimuth),
                      std::sin(elevation)};
        // Drawn for each shot, so that a lost shot changes no other.
        const bool comes_back = draw(0, 1) >= lost;
        const double noise = draw.noise() * range_noise;
        double range = ray.dz < 0 ? -ray.z / ray.dz : std::numeric_limits<double>::infinity();
        double reflectance = 0.2;
        for (const Box& box : street)
          if (const double met = box.met(ray); met < range) range = met, reflectance = box.reflectance;
        if (!comes_back || range > most_range) continue;
        range = std::max(0.5, range + noise);
        const double fading = 1 - range / most_range / 2;
        points.insert(points.end(),
                      {static_cast<float>(ray.x + range * ray.dx), static_cast<float>(ray.y + range * ray.dy),
                       static_cast<float>(range * ray.dz), static_cast<float>(reflectance * fading)});
        if (options.columns == 5) points.push_back(static_cast<float>(before * sweep_seconds));
      }
    }
  }
  const auto rows = static_cast<std::int64_t>(points.size()) / options.columns;
  Tensor scan(DType::f32, {rows, options.columns});
  std::copy(points.begin(), points.end(), scan.values<float>().begin());
  return scan;
}

}  // namespace lenslet::tool
