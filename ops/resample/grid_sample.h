#pragma once
// GridSample at one point, for host and device. Source: ONNX, GridSample-22, and its reference.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/cuda/host_device.h"

namespace lenslet {

struct GridSampleRule {
  enum class Mode : std::uint8_t { nearest, linear, cubic };
  enum class Padding : std::uint8_t { zeros, border, reflection };
  Mode mode = Mode::linear;
  Padding padding = Padding::zeros;
  bool align_corners = false;  ///< -1 and 1 are the centres of the outermost elements, not their far edges
};

/// Y [N,C,P,Q] of X [N,C,H,W] at grid [N,P,Q,2], x before y; for volumes Y [N,C,O,P,Q] of X [N,C,D,H,W] at grid
/// [N,O,P,Q,3], with z last. Strides per axis in elements, for any format.
struct GridSampleShape {
  bool volumes = false;
  std::int64_t n = 0, c = 0, d = 1, h = 0, w = 0, o = 1, p = 0, q = 0;
  std::int64_t x_n = 0, x_c = 0, x_d = 0, x_h = 0, x_w = 0;
  std::int64_t y_n = 0, y_c = 0, y_o = 0, y_p = 0, y_q = 0;
  std::int64_t grid_n = 0, grid_o = 0, grid_p = 0, grid_q = 0, grid_xy = 0;
};

/// Taps of a point along one axis, as offsets; `outside` for taps in the zero padding.
template <int taps>
struct GridTaps {
  static constexpr std::int64_t outside = -1;
  bool inside = true;  ///< all of them
  std::int64_t offset[taps];
  float weight[taps];
};

template <>
struct GridTaps<0> {};

/// `x` reflected at the borders until it lies between them.
LENSLET_HOST_DEVICE inline double reflected(double x, double low, double high) {
  const double range = high - low;
  if (!(x < low || x > high)) return x;
  if (range <= 0) return low;
  const double beyond = x < low ? low - x : x - high;
  const double turns = std::floor(beyond / range), rest = beyond - turns * range;
  const bool from_low = (x < low) == (turns == 2 * std::floor(turns / 2));
  return from_low ? low + rest : high - rest;
}

/// R. G. Keys' cubic convolution weight, a = -0.75, at that distance.
LENSLET_HOST_DEVICE inline double keys_weight(double distance) {
  constexpr double a = -0.75;
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/// In double: float32 would err by up to size * 2^-24 elements. `taps` is 1 for nearest, 2 for linear, 4 for cubic. NaN
/// coordinates, and infinite ones that are reflected, give NaN weights.
template <int taps>
LENSLET_HOST_DEVICE GridTaps<taps> grid_taps(const GridSampleRule& rule, float coordinate, std::int64_t size,
                                             std::int64_t step) {
  using Padding = GridSampleRule::Padding;
  const double last = static_cast<double>(size - 1);
  const double low = rule.align_corners ? 0 : -0.5, high = rule.align_corners ? last : last + 0.5;
  const double moved = static_cast<double>(coordinate) + 1;
  double x = rule.align_corners ? moved / 2 * last : (moved * static_cast<double>(size) - 1) / 2;
  if constexpr (taps == 1) x = std::nearbyint(x);
  if (x < low || x > high) {
    if (rule.padding == Padding::border) x = x < 0 ? 0 : last;
    if (rule.padding == Padding::reflection) x = reflected(x, low, high);
    // Clamped to an integer's range: far outside there are only zeros.
    if (rule.padding == Padding::zeros) x = x < -4 ? -4 : x > last + 4 ? last + 4 : x;
  }
  const bool known = x >= -4 && x <= last + 4;
  const double first = known ? std::floor(x) - (taps == 4 ? 1 : 0) : 0;
  GridTaps<taps> result;
  for (int t = 0; t < taps; ++t) {
    double at = first + t;
    const double distance = x - at;
    const double weight = !known ? x - x : taps == 1 ? 1 : taps == 2 ? 1 - std::fabs(distance) : keys_weight(distance);
    result.weight[t] = static_cast<float>(weight);
    bool inside = at >= 0 && at <= last;
    if (!inside && rule.padding != Padding::zeros) {
      at = rule.padding == Padding::border ? (at < 0 ? 0 : last) : std::floor(reflected(at, low, high));
      inside = true;
    }
    result.inside = result.inside && inside;
    result.offset[t] = inside ? static_cast<std::int64_t>(at) * step : GridTaps<taps>::outside;
  }
  return result;
}

/// The interpolated point from the taps of both axes, in the channel at `x` or in zeros.
template <int taps>
LENSLET_HOST_DEVICE float sampled(const GridTaps<taps>& rows, const GridTaps<taps>& columns, const float* x,
                                  bool in_zeros = false) {
  const bool all = rows.inside && columns.inside;
  float sum = 0;
  for (int r = 0; r < taps; ++r) {
    float line = 0;
    for (int c = 0; c < taps; ++c) {
      // Weights count outside, too: a NaN stays NaN.
      const bool inside = !in_zeros && (all || (rows.offset[r] >= 0 && columns.offset[c] >= 0));
      line += columns.weight[c] * (inside ? x[rows.offset[r] + columns.offset[c]] : 0);
    }
    sum += rows.weight[r] * line;
  }
  return sum;
}

/// The taps of a point along each axis; images have no `slices`.
template <int taps, bool volumes>
struct GridPoint {
  GridTaps<taps> rows, columns;
  GridTaps<volumes ? taps : 0> slices;

  GridPoint() = default;
  /// `at`: the point's position in the grid.
  LENSLET_HOST_DEVICE GridPoint(const GridSampleRule& rule, const GridSampleShape& s, const float* at)
      : rows(grid_taps<taps>(rule, at[s.grid_xy], s.h, s.x_h)), columns(grid_taps<taps>(rule, at[0], s.w, s.x_w)) {
    if constexpr (volumes) slices = grid_taps<taps>(rule, at[2 * s.grid_xy], s.d, s.x_d);
  }
  LENSLET_HOST_DEVICE float operator()(const float* x) const {
    if constexpr (!volumes) {
      return sampled<taps>(rows, columns, x);
    } else {
      float sum = 0;
      for (int i = 0; i < taps; ++i) {
        const bool outside = slices.offset[i] < 0;
        sum += slices.weight[i] * sampled<taps>(rows, columns, outside ? x : x + slices.offset[i], outside);
      }
      return sum;
    }
  }
};
/// Calls f(std::integral_constant<int, taps>(), std::bool_constant<volumes>()); volumes have no cubic mode.
template <typename F>
auto with_grid_taps(const GridSampleRule& rule, bool volumes, const F& f) {
  using Mode = GridSampleRule::Mode;
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  if (volumes) return rule.mode == Mode::nearest ? f(one, std::true_type()) : f(two, std::true_type());
  if (rule.mode == Mode::cubic) return f(std::integral_constant<int, 4>(), std::false_type());
  return rule.mode == Mode::nearest ? f(one, std::false_type()) : f(two, std::false_type());
}

}  // namespace lenslet
