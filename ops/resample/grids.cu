#include <algorithm>

#include "base/cuda/launch.h"
#include "ops/core/radix.cuh"
#include "ops/resample/grids_cuda.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

/// The work distribution: a thread has one point, whose taps it computes once, and some channels.
struct GridItems {
  std::int64_t count;
  Radix q, p, o, n, lanes;
  std::int64_t lane_step, channel_step, channels_each;  ///< from lane * lane_step on, each channel_step
  bool channels_last;                                   ///< neighbouring threads are neighbouring channels
  bool narrow;
};

template <int taps, bool volumes>
__global__ void __launch_bounds__(threads)
    grid_sample_points(const float* x, const float* grid, float* y, GridSampleRule rule,
                       const __grid_constant__ GridSampleShape s, const __grid_constant__ GridItems items) {
  wait_for_previous();
  std::int64_t rest = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (rest >= items.count) return;
  std::int64_t lane = items.channels_last ? take_digit(rest, items.lanes, items.narrow) : 0;
  const std::int64_t q = take_digit(rest, items.q, items.narrow), p = take_digit(rest, items.p, items.narrow);
  const std::int64_t o = volumes ? take_digit(rest, items.o, items.narrow) : 0;
  const std::int64_t n = take_digit(rest, items.n, items.narrow);
  if (!items.channels_last) lane = rest;
  const GridPoint<taps, volumes> point(rule, s, grid + n * s.grid_n + o * s.grid_o + p * s.grid_p + q * s.grid_q);
  std::int64_t channel = lane * items.lane_step;
  const float* from = x + n * s.x_n + channel * s.x_c;
  float* to = y + n * s.y_n + channel * s.y_c + o * s.y_o + p * s.y_p + q * s.y_q;
  for (std::int64_t i = 0; i < items.channels_each && channel < s.c; ++i, channel += items.channel_step) {
    *to = point(from);
    from += items.channel_step * s.x_c;
    to += items.channel_step * s.y_c;
  }
}

__global__ void __launch_bounds__(threads)
    affine_points(const float* theta, float* grid, const __grid_constant__ AffineGridShape shape) {
  wait_for_previous();
  const std::int64_t point = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (point >= shape.n * shape.points()) return;
  const std::int64_t n = point / shape.points();
  affine_point(shape, theta + n * shape.axes * (shape.axes + 1), point - n * shape.points(), grid + point * shape.axes);
}

}  // namespace

void grid_sample(const Context& context, const GridSampleRule& rule, const GridSampleShape& s, const float* x,
                 const float* grid, float* y) {
  if (s.n * s.c * s.o * s.p * s.q == 0) return;
  constexpr std::int64_t most_channels = 8, most_lanes = 32;
  GridItems items;
  items.channels_last = s.y_c == 1 && s.c > 1;
  const std::int64_t lanes =
      items.channels_last ? std::min(s.c, most_lanes) : (s.c + most_channels - 1) / most_channels;
  items.lanes = Radix(lanes);
  items.lane_step = items.channels_last ? 1 : most_channels;
  items.channel_step = items.channels_last ? lanes : 1;
  items.channels_each = items.channels_last ? (s.c + lanes - 1) / lanes : most_channels;
  items.q = Radix(s.q);
  items.p = Radix(s.p);
  items.o = Radix(s.o);
  items.n = Radix(s.n);
  items.count = lanes * s.n * s.o * s.p * s.q;
  items.narrow = items.count < Radix::narrow_end;
  const auto kernel =
      with_grid_taps(rule, s.volumes, [](auto taps, auto volumes) { return &grid_sample_points<taps, volumes>; });
  launch(context, kernel, dim3(blocks_for(items.count, threads)), dim3(threads), 0, x, grid, y, rule, s, items);
}

void affine_grid(const Context& context, const AffineGridShape& shape, const float* theta, float* grid) {
  const std::int64_t points = shape.n * shape.points();
  if (points == 0) return;
  launch(context, affine_points, dim3(blocks_for(points, threads)), dim3(threads), 0, theta, grid, shape);
}

}  // namespace lenslet::cuda
