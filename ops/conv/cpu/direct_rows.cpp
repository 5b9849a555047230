// Direct sums in NHWC with vectors along output rows: for long filters, and for few channels or filters, which would
// leave vectors over channels mostly empty. The input of a strip of output rows is first copied to planes a channel,
// zero-padded; with a stride, columns that one tap reads are made adjacent. Each tap is then a scalar times a vector of
// neighbouring outputs.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/simd/targets.h"
#include "ops/conv/algorithm.h"
#include "ops/conv/taps_inside.h"
#include "ops/core/fused_clamp.h"
#include "ops/core/transpose_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/cpu/direct_rows.cpp"
// foreach_target.h comes first.
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/tile-inl.h"
// clang-format on

#ifndef LENSLET_OPS_CONV_CPU_DIRECT_ROWS_ONCE
#define LENSLET_OPS_CONV_CPU_DIRECT_ROWS_ONCE
namespace lenslet {
namespace {

constexpr std::int64_t most_lanes = 16;
/// Products of a partial sum, or those of one row of taps.
constexpr std::int64_t partial_length = 256;
/// Filters whose accumulators are in registers at once.
constexpr std::int64_t most_filters = 4;

std::int64_t round_up(std::int64_t count, std::int64_t to) { return (count + to - 1) / to * to; }

/// Whether vectors go along the image's columns, which are longer than its rows. Everything below then sees height and
/// width exchanged.
bool upright(const ConvProblem& p) { return p.q < most_lanes && p.p > p.q; }

ConvProblem lying(ConvProblem p) {
  if (!upright(p)) return p;
  std::swap(p.h, p.w);
  std::swap(p.r, p.s);
  std::swap(p.p, p.q);
  std::swap(p.stride_h, p.stride_w);
  std::swap(p.dilation_h, p.dilation_w);
  std::swap(p.pad_top, p.pad_left);
  std::swap(p.pad_bottom, p.pad_right);
  return p;
}

/// Filters of a group to compute next: 4, 2 or 1 of those left.
std::int64_t filters_at_once(std::int64_t left) { return left >= most_filters ? most_filters : left >= 2 ? 2 : 1; }

/// Up to four filters of a group over a strip.
struct RowStrip {
  const float* x = nullptr;            ///< first channel's plane, at the strip's origin
  std::int64_t plane = 0;              ///< floats from a channel to the next
  std::int64_t row = 0;                ///< from an image row to the next
  const std::int64_t* taps = nullptr;  ///< [S]: offset in a row of each tap's input
  const float* w = nullptr;            ///< [C/groups][R][S][filters]
  const float* bias = nullptr;         ///< [filters], or null
  float* y = nullptr;
  std::int64_t y_plane = 0, y_row = 0;  ///< floats from a filter to the next, from a row to the next
  Range rows{0, 0}, columns{0, 0};      ///< of the output
};

}  // namespace
}  // namespace lenslet
#endif

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// FMA has 4 cycles latency on 2 units: 8 accumulators keep them busy. With four filters a vector of x serves four.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
constexpr int most_sums = 8;
#else
constexpr int most_sums = 16;
#endif
constexpr int vectors_of(int filters) { return filters == 1 ? 8 : filters == 2 ? 4 : most_sums / filters; }

/// `Vectors` accumulators a filter, `step` floats of x and `y_step` of y apart.
template <int Filters, int Vectors>
LENSLET_TILE_INLINE void sum_tile(const RowStrip& strip, const ConvProblem& problem, const float* x, std::int64_t step,
                                  float* y, std::int64_t y_step, Range r, Range s) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t channels = problem.group_c(), taps_h = problem.r, taps_w = problem.s;
  const std::int64_t plane = strip.plane, x_row = problem.dilation_h * strip.row, y_plane = strip.y_plane;
  const std::int64_t* HWY_RESTRICT const taps = strip.taps;
  V acc[Filters][Vectors];
  const auto clear = [&]() HWY_ATTR {
    HWY_UNROLL(4)
    for (int k = 0; k < Filters; ++k) {
      HWY_UNROLL(8)
      for (int v = 0; v < Vectors; ++v) acc[k][v] = hn::Zero(d);
    }
  };
  bool first = true;
  const auto add_to_y = [&]() HWY_ATTR {
    HWY_UNROLL(4)
    for (int k = 0; k < Filters; ++k) {
      const V bias = strip.bias == nullptr ? hn::Zero(d) : hn::Set(d, strip.bias[k]);
      HWY_UNROLL(8)
      for (int v = 0; v < Vectors; ++v) {
        float* const at = y + k * y_plane + v * y_step;
        hn::StoreU(hn::Add(first ? bias : hn::LoadU(d, at), acc[k][v]), d, at);
      }
    }
    first = false;
  };
  clear();
  // Rows of taps in a partial sum are fixed, whatever is skipped.
  const std::int64_t rows_together = std::max<std::int64_t>(1, partial_length / taps_w);
  std::int64_t part = 0;
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const std::int64_t tap_row = c * taps_h + i;
      if (tap_row / rows_together != part) {
        part = tap_row / rows_together;
        add_to_y();
        clear();
      }
      const float* const from = x + c * plane + i * x_row;
      const float* HWY_RESTRICT w = strip.w + (tap_row * taps_w + s.begin) * Filters;
      for (std::int64_t j = s.begin; j < s.end; ++j, w += Filters) {
        const float* const at = from + taps[j];
        V in[Vectors];
        HWY_UNROLL(8)
        for (int v = 0; v < Vectors; ++v) in[v] = hn::LoadU(d, at + v * step);
        HWY_UNROLL(4)
        for (int k = 0; k < Filters; ++k) {
          const V tap = hn::Set(d, w[k]);
          HWY_UNROLL(8)
          for (int v = 0; v < Vectors; ++v) acc[k][v] = hn::MulAdd(in[v], tap, acc[k][v]);
        }
      }
    }
  add_to_y();
}

/// `count` vectors, in tiles of 8, 4, 2 and 1.
template <int Filters, class Tile>
HWY_INLINE void over_tiles(std::int64_t count, const Tile& tile) {
  constexpr int most = vectors_of(Filters);
  std::int64_t v = 0;
  for (; v + most <= count; v += most) tile(std::integral_constant<int, most>(), v);
  if constexpr (most > 4)
    if (v + 4 <= count) tile(std::integral_constant<int, 4>(), std::exchange(v, v + 4));
  if constexpr (most > 2)
    if (v + 2 <= count) tile(std::integral_constant<int, 2>(), std::exchange(v, v + 2));
  if (v < count) tile(std::integral_constant<int, 1>(), v);
}

/// Number of those tiles.
std::int64_t tiles_of(std::int64_t vectors, std::int64_t filters) {
  const std::int64_t most = vectors_of(static_cast<int>(filters)), rest = vectors % most;
  return vectors / most + rest / 4 + rest % 4 / 2 + rest % 2;
}

/// Whether a tile's vectors are along a row, or in rows below each other.
bool goes_along(std::int64_t rows, std::int64_t columns, std::int64_t filters) {
  return rows * tiles_of(columns, filters) <= columns * tiles_of(rows, filters);
}

template <int Filters>
void sum_filters(const RowStrip& strip, const ConvProblem& problem) {
  const std::int64_t lanes = vector_lanes();
  const std::int64_t rows = strip.rows.count(), width = strip.columns.count(), columns = (width + lanes - 1) / lanes;
  const std::int64_t x_row = problem.stride_h * strip.row;
  const auto columns_of = [&](std::int64_t first, std::int64_t vectors) {
    const std::int64_t last = std::min(width, (first + vectors) * lanes) - 1;
    return columns_inside(problem, strip.columns.begin + first * lanes, strip.columns.begin + last);
  };
  if (goes_along(rows, columns, Filters)) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t p = strip.rows.begin + row;
      const Range r = rows_inside(problem, p, p);
      over_tiles<Filters>(columns, [&](auto vectors, std::int64_t v) HWY_ATTR {
        sum_tile<Filters, decltype(vectors)::value>(strip, problem, strip.x + row * x_row + v * lanes, lanes,
                                                    strip.y + row * strip.y_row + v * lanes, lanes, r,
                                                    columns_of(v, decltype(vectors)::value));
      });
    }
    return;
  }
  for (std::int64_t v = 0; v < columns; ++v) {
    const Range s = columns_of(v, 1);
    over_tiles<Filters>(rows, [&](auto vectors, std::int64_t row) HWY_ATTR {
      const std::int64_t p = strip.rows.begin + row;
      sum_tile<Filters, decltype(vectors)::value>(strip, problem, strip.x + row * x_row + v * lanes, x_row,
                                                  strip.y + row * strip.y_row + v * lanes, strip.y_row,
                                                  rows_inside(problem, p, p + decltype(vectors)::value - 1), s);
    });
  }
}

void sum_rows(const RowStrip& strip, const ConvProblem& problem, std::int64_t filters) {
  if (filters == 4)
    sum_filters<4>(strip, problem);
  else if (filters == 2)
    sum_filters<2>(strip, problem);
  else
    sum_filters<1>(strip, problem);
}

/// Applies the activation to whole vectors of sums.
void activate(const Activation& activation, float* sums, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = vector_lanes();
  const FusedClamp clamp(activation);
  const auto low = hn::Set(d, clamp.low), high = hn::Set(d, clamp.high);
  if (!clamp.after) {
    for (std::int64_t i = 0; i < count; i += lanes)
      hn::StoreU(at_most(high, at_least(low, hn::LoadU(d, sums + i))), d, sums + i);
    return;
  }
  with_activation(activation, [&](auto act) HWY_ATTR {
    for (std::int64_t i = 0; i < count; i += lanes) hn::StoreU(act(d, hn::LoadU(d, sums + i)), d, sums + i);
  });
}

/// Cost of a group's filters over an image in vector FMAs: the FMAs, or the latency of a tile with fewer than 8
/// accumulators, or loads of x (two cache lines each for 64-byte vectors); plus the start of a row of taps.
double issued_vectors(const ConvProblem& p, std::int64_t rows, std::int64_t columns) {
  const std::int64_t lanes = vector_lanes();
  const std::int64_t vectors = (columns + lanes - 1) / lanes;
  const double taps_w = mean_columns_inside(p, lanes);
  const double gemm_k = mean_rows_inside(p) * taps_w * static_cast<double>(p.group_c());
  double tap = 0;  // over all tiles of a strip
  for (std::int64_t k = 0, filters = 0; k < p.group_k(); k += filters) {
    filters = filters_at_once(p.group_k() - k);
    const std::int64_t tiles =
        goes_along(rows, vectors, filters) ? rows * tiles_of(vectors, filters) : vectors * tiles_of(rows, filters);
    const std::int64_t loads = (lanes == most_lanes ? 2 : 1) * rows * vectors + tiles * filters;
    tap += static_cast<double>(std::max({rows * vectors * filters, tiles * 8, loads})) +
           static_cast<double>(tiles) * 8 / (taps_w + 1);
  }
  const double strips = std::ceil(static_cast<double>(p.p) / static_cast<double>(rows)) *
                        std::ceil(static_cast<double>(p.q) / static_cast<double>(columns));
  return strips * tap * gemm_k;
}

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {
namespace {

HWY_EXPORT(sum_rows);
HWY_EXPORT(activate);
HWY_EXPORT(issued_vectors);
HWY_EXPORT(vector_lanes);

/// A thread's work item, of `groups` groups, and the layout of its copy.
struct Tiling {
  std::int64_t groups, rows, columns;  ///< of the output
  std::vector<std::int64_t> phases;    ///< remainders modulo stride_w among taps
  std::int64_t span = 0;               ///< columns that an output's taps span, in strides

  std::int64_t line() const { return round_up(columns, most_lanes) + span; }
  /// Row pitch that keeps neighbouring rows out of the same L1 set.
  std::int64_t row_floats() const {
    const std::int64_t floats = round_up(line() * static_cast<std::int64_t>(phases.size()), most_lanes);
    return floats % 512 == 0 ? floats + most_lanes : floats;
  }
  std::int64_t image_rows(const ConvProblem& p) const { return (rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1; }
  std::int64_t plane_floats(const ConvProblem& p) const { return image_rows(p) * row_floats(); }
  std::int64_t x_floats(const ConvProblem& p) const { return groups * p.group_c() * plane_floats(p); }
  std::int64_t y_row() const { return round_up(columns, most_lanes); }
  std::int64_t y_floats(const ConvProblem& p) const { return groups * p.group_k() * rows * y_row(); }
  double floats(const ConvProblem& p) const {  // double: not bounded yet
    return static_cast<double>(groups) *
           (static_cast<double>(p.group_c()) * static_cast<double>(image_rows(p)) * static_cast<double>(row_floats()) +
            static_cast<double>(p.group_k()) * static_cast<double>(rows) * static_cast<double>(y_row()));
  }
  std::int64_t sets(const ConvProblem& p) const { return (p.groups + groups - 1) / groups; }
  std::int64_t strips(const ConvProblem& p) const { return (p.p + rows - 1) / rows; }
  std::int64_t parts(const ConvProblem& p) const { return (p.q + columns - 1) / columns; }
  /// Average share of an item that is filled: the last ones may be smaller.
  double filled(const ConvProblem& p) const {
    const auto share = [](std::int64_t all, std::int64_t parts, std::int64_t part) {
      return static_cast<double>(all) / static_cast<double>(parts * part);
    };
    return share(p.groups, sets(p), groups) * share(p.p, strips(p), rows) * share(p.q, parts(p), columns);
  }
  std::int64_t items(const ConvProblem& p) const { return p.n * sets(p) * strips(p) * parts(p); }
};

std::int64_t half(std::int64_t count) { return (count + 1) / 2; }

Tiling tiling_of(const ConvProblem& p, const DeviceProfile& device) {
  // Whole vectors of channels are transposed at once.
  Tiling tiling{std::clamp<std::int64_t>(most_lanes / p.group_c(), 1, p.groups), p.p, p.q, {}, 0};
  for (std::int64_t s = 0; s < std::min(p.s, p.stride_w); ++s) {
    const std::int64_t phase = s * p.dilation_w % p.stride_w;
    if (std::ranges::find(tiling.phases, phase) == tiling.phases.end()) tiling.phases.push_back(phase);
  }
  tiling.span = (p.s - 1) * p.dilation_w / p.stride_w;
  const double most = static_cast<double>(device.l2_bytes) / sizeof(float) / 2;
  while (tiling.rows > 8 && tiling.floats(p) > most) tiling.rows = half(tiling.rows);
  while (tiling.columns > 256 && tiling.floats(p) > most) tiling.columns = round_up(half(tiling.columns), most_lanes);
  while (tiling.rows > 1 && tiling.floats(p) > most) tiling.rows = half(tiling.rows);
  // Several items a thread, of some 20 us and more.
  constexpr double least_flops = 1e6;
  const auto too_few = [&](std::int64_t more) {
    return device.units > 1 && tiling.items(p) % device.units != 0 &&
           tiling.items(p) < std::int64_t{4} * device.units &&
           p.flops() / static_cast<double>(tiling.items(p) * more) > least_flops;
  };
  while (tiling.rows > 1 && too_few(2)) tiling.rows = half(tiling.rows);
  while (tiling.columns > 128 && too_few(2)) tiling.columns = round_up(half(tiling.columns), most_lanes);
  return tiling;
}

class BoundDirectRows final : public BoundConv {
 public:
  /// `p` is lying(whole).
  BoundDirectRows(const ConvProblem& whole, const ConvProblem& p, const Tiling& tiling, int threads)
      : BoundConv(whole, static_cast<std::size_t>(threads * (tiling.x_floats(p) + tiling.y_floats(p))) * sizeof(float)),
        lying_(p),
        tiling_(tiling),
        x_steps_(steps(whole.w)),
        y_steps_(steps(whole.q)) {
    for (std::int64_t s = 0; s < p.s; ++s) {
      const std::int64_t column = s * p.dilation_w;
      const auto phase = std::ranges::find(tiling.phases, column % p.stride_w) - tiling.phases.begin();
      taps_.push_back(phase * tiling.line() + column / p.stride_w);
    }
  }

 private:
  /// A work item: groups, output rows and columns of an image.
  struct Item {
    std::int64_t image;
    Range groups, rows, columns;
  };

  /// Pixel strides of a tensor along rows and columns of the exchanged image.
  struct Steps {
    std::int64_t row, column;
  };
  Steps steps(std::int64_t width) const { return upright(problem) ? Steps{1, width} : Steps{width, 1}; }

  void compute(const ConvRun& run) const override {
    const std::int64_t items = tiling_.items(lying_), floats = tiling_.x_floats(lying_) + tiling_.y_floats(lying_);
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    run.pool->parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      float* const x = workspace + worker * floats;
      float* const sums = x + tiling_.x_floats(lying_);
      for (std::int64_t i = begin; i < end; ++i) compute(run, item_of(i), x, sums);
    });
  }

  Item item_of(std::int64_t i) const {
    const ConvProblem& p = lying_;
    const std::int64_t parts = tiling_.parts(p), strips = tiling_.strips(p), sets = tiling_.sets(p);
    const auto part = [](std::int64_t number, std::int64_t length, std::int64_t all) {
      return Range{number * length, std::min(all, (number + 1) * length)};
    };
    return {i / (parts * sets * strips), part(i / parts % sets, tiling_.groups, p.groups),
            part(i / (parts * sets) % strips, tiling_.rows, p.p), part(i % parts, tiling_.columns, p.q)};
  }

  void compute(const ConvRun& run, const Item& item, float* x, float* sums) const {
    const ConvProblem& p = lying_;
    const std::int64_t k = p.group_k(), y_row = tiling_.y_row(), y_plane = item.rows.count() * y_row;
    copy_planes(run, item, x);
    for (std::int64_t g = item.groups.begin; g < item.groups.end; ++g)
      for (std::int64_t i = 0, filters = 0; i < k; i += filters) {
        filters = filters_at_once(k - i);
        const RowStrip strip{.x = x + (g - item.groups.begin) * p.group_c() * tiling_.plane_floats(p),
                             .plane = tiling_.plane_floats(p),
                             .row = tiling_.row_floats(),
                             .taps = taps_.data(),
                             .w = run.filter<float>() + (g * k + i) * p.group_c() * p.r * p.s,
                             .bias = run.bias<float>() == nullptr ? nullptr : run.bias<float>() + g * k + i,
                             .y = sums + ((g - item.groups.begin) * k + i) * y_plane,
                             .y_plane = y_plane,
                             .y_row = y_row,
                             .rows = item.rows,
                             .columns = item.columns};
        HWY_DYNAMIC_DISPATCH(sum_rows)(strip, p, filters);
      }
    store(run, item, sums, y_plane);
  }

  /// Copies an item's input: [channel][image row][phase][column], zero-padded.
  void copy_planes(const ConvRun& run, const Item& item, float* x) const {
    const ConvProblem& p = lying_;
    const std::int64_t channels = item.groups.count() * p.group_c(), plane = tiling_.plane_floats(p);
    const std::int64_t top = item.rows.begin * p.stride_h - p.pad_top;
    const std::int64_t rows = (item.rows.count() - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
    for (std::int64_t row = 0; row < rows; ++row) {
      if (p.dilation_h == 1 && row % p.stride_h >= p.r) continue;  // no tap reads it
      float* const to = x + row * tiling_.row_floats();
      const std::int64_t h = top + row;
      const std::int64_t pixel = item.image * p.h * p.w + std::clamp<std::int64_t>(h, 0, p.h - 1) * x_steps_.row;
      const float* const line = run.x<float>() + pixel * p.c + item.groups.begin * p.group_c();
      for (std::size_t i = 0; i < tiling_.phases.size(); ++i)
        copy_line(line, h >= 0 && h < p.h, item.columns.begin * p.stride_w - p.pad_left + tiling_.phases[i], channels,
                  to + static_cast<std::int64_t>(i) * tiling_.line(), plane);
    }
  }

  /// Copies columns first, first + stride_w, ... of an image row.
  void copy_line(const float* line, bool inside, std::int64_t first, std::int64_t channels, float* to,
                 std::int64_t plane) const {
    const std::int64_t count = tiling_.line(), step = lying_.stride_w, w = lying_.w;
    const std::int64_t column = x_steps_.column * problem.c, pixel = step * column;
    const std::int64_t begin = !inside ? count : first >= 0 ? 0 : std::min(count, (-first + step - 1) / step);
    const std::int64_t end = !inside || first >= w ? begin : std::clamp((w - 1 - first) / step + 1, begin, count);
    for (std::int64_t c = 0; c < channels; ++c) {
      std::fill(to + c * plane, to + c * plane + begin, 0.0F);
      std::fill(to + c * plane + end, to + c * plane + count, 0.0F);
    }
    if (begin == end) return;
    const float* const from = line + (first + begin * step) * column;
    if (pixel == 1)
      std::memcpy(to + begin, from, static_cast<std::size_t>(end - begin) * sizeof(float));
    else
      transpose_block(sizeof(float), from, pixel, to + begin, plane, end - begin, channels);
  }

  void store(const ConvRun& run, const Item& item, float* sums, std::int64_t y_plane) const {
    const ConvProblem& p = lying_;
    const std::int64_t filters = item.groups.count() * p.group_k(), first = item.groups.begin * p.group_k();
    const std::int64_t count = item.columns.count(), y_row = tiling_.y_row();
    const auto pixel_of = [&](std::int64_t row) {
      return item.image * p.p * p.q + (item.rows.begin + row) * y_steps_.row + item.columns.begin * y_steps_.column;
    };
    if (run.residual<float>() != nullptr)
      for (std::int64_t row = 0; row < item.rows.count(); ++row)
        for (std::int64_t k = 0; k < filters; ++k) {
          const float* const from = run.residual<float>() + pixel_of(row) * p.k + first + k;
          float* const to = sums + k * y_plane + row * y_row;
          for (std::int64_t q = 0; q < count; ++q) to[q] += from[q * y_steps_.column * p.k];
        }
    HWY_DYNAMIC_DISPATCH(activate)(p.activation, sums, filters * y_plane);
    const std::int64_t step = y_steps_.column * run.y_pixel;
    for (std::int64_t row = 0; row < item.rows.count(); ++row) {
      float* const to = run.y<float>() + pixel_of(row) * run.y_pixel + first;
      if (step == 1)
        std::memcpy(to, sums + row * y_row, static_cast<std::size_t>(count) * sizeof(float));
      else
        transpose_block(sizeof(float), sums + row * y_row, y_plane, to, step, filters, count);
    }
  }

  const ConvProblem lying_;
  const Tiling tiling_;
  const Steps x_steps_, y_steps_;
  std::vector<std::int64_t> taps_;  ///< offset in a row of each tap's input
};

class DirectRows final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct_rows"; }
  DeviceKind device() const override { return DeviceKind::cpu; }

 private:
  static constexpr double most_floats = 16 << 20;

  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (tiling_of(lying(p), target.device).floats(lying(p)) > most_floats)
      return "the columns that a thread copies at a time exceed 64 MiB";
    return std::nullopt;
  }

  ConvCandidate candidate(const ConvProblem& problem, const Target& target) const override {
    const DeviceProfile& rates = target.device;
    const ConvProblem p = lying(problem);
    const Tiling tiling = tiling_of(p, rates);
    ConvCandidate candidate;
    candidate.pitched = true;
    candidate.tolerance = 3e-6 + 4e-7 * std::sqrt(static_cast<double>(p.group_c() * p.r * p.s));
    // us a float copied, and a sum stored: transposed, unless neighbours are adjacent in memory.
    constexpr double float_us = 0.00013, adjacent_us = 0.00004;
    const double copy_us =
        p.c == 1 && p.stride_w == 1 && (!upright(problem) || problem.w == 1) ? adjacent_us : float_us;
    const double store_us = p.k == 1 && (!upright(problem) || problem.q == 1) ? adjacent_us : float_us;
    const auto items = static_cast<double>(tiling.items(p)), threads = static_cast<double>(rates.units);
    const auto lanes = static_cast<double>(HWY_DYNAMIC_DISPATCH(vector_lanes)());
    const double vectors = static_cast<double>(p.n * p.groups) *
                           HWY_DYNAMIC_DISPATCH(issued_vectors)(p, tiling.rows, std::min(tiling.columns, p.q));
    const double calls = static_cast<double>(p.groups) * std::ceil(static_cast<double>(p.group_k()) / most_filters) *
                         items / static_cast<double>(tiling.sets(p));
    const double copied = static_cast<double>(tiling.x_floats(p)) * copy_us,
                 stored = static_cast<double>(tiling.y_floats(p)) * store_us;
    const double of_items = 0.2 * items + 0.03 * calls + tiling.filled(p) * items * (copied + stored) +
                            2 * lanes * vectors / (0.7 * rates.fp32_flops_per_us / threads);
    const bool cached = p.bytes() < 8 * static_cast<double>(rates.l2_bytes);  // in L3
    candidate.estimated_us =
        1 + std::ceil(items / threads) / items * of_items + p.bytes() / ((cached ? 4 : 1) * rates.bytes_per_us);
    return candidate;
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.elements = p.k * p.group_c() * p.r * p.s, .form = upright(p) ? "columns" : "rows"};
  }
  void transform(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                 std::span<std::byte> bytes) const override {
    const std::span<float> to = as_floats(bytes);
    const std::int64_t taps = p.r * p.s, rows = upright(p) ? p.s : p.r, columns = taps / rows;
    std::size_t at = 0;
    for (std::int64_t g = 0; g < p.groups; ++g)
      for (std::int64_t i = 0, filters = 0; i < p.group_k(); i += filters) {
        filters = filters_at_once(p.group_k() - i);
        for (std::int64_t k_index = 0; k_index < filter.gemm_k; ++k_index) {
          const std::int64_t row = k_index % taps / columns, column = k_index % columns;
          const std::int64_t from = upright(p) ? k_index / taps * taps + column * p.s + row : k_index;
          for (std::int64_t k = g * p.group_k() + i; k < g * p.group_k() + i + filters; ++k)
            to[at++] = filter.weight(k, from);
        }
      }
  }
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& whole, std::string_view,
                                               const DeviceProfile& device) const override {
    const ConvProblem p = lying(whole);
    return std::make_unique<BoundDirectRows>(whole, p, tiling_of(p, device), device.units);
  }
};

}  // namespace

const Kernel& conv_direct_rows() {
  static const DirectRows algorithm;
  return algorithm;
}

}  // namespace lenslet
#endif
