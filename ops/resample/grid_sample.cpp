// GridSample: Y [N,C,P,Q] is X [N,C,H,W] at the points of a grid [N,P,Q,2]; volumes have one more axis.

#include "ops/resample/grid_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/resample/grids_cuda.h"

namespace lenslet {

namespace {

constexpr std::string_view modes[] = {"nearest", "linear", "cubic"};  // by GridSampleRule::Mode
constexpr std::string_view paddings[] = {"zeros", "border", "reflection"};

class GridSampleOp final : public Op {
 public:
  GridSampleRule rule;

  explicit GridSampleOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    // Version 16 names two modes after their 2-D forms.
    std::string mode = reader.text("mode", spec.before(20) ? "bilinear" : "linear");
    if (spec.before(20) && (mode == "bilinear" || mode == "bicubic")) mode.erase(0, 2);
    rule.mode = word<GridSampleRule::Mode>("mode", mode, modes);
    rule.padding = word<GridSampleRule::Padding>("padding_mode", reader.text("padding_mode", "zeros"), paddings);
    rule.align_corners = reader.flag("align_corners", false);
    reader.finish();
  }

  std::string_view type() const override { return "GridSample"; }
  AttributeList attributes() const override {
    return {{"mode", std::string(modes[static_cast<std::size_t>(rule.mode)])},
            {"padding_mode", std::string(paddings[static_cast<std::size_t>(rule.padding)])},
            {"align_corners", std::int64_t{rule.align_corners}}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "X");
    const TensorType& grid = required_input(inputs, 1, "grid");
    require_rank("input X", x.shape, 4, 5);
    const int rank = x.shape.rank();
    require_rank("input grid", grid.shape, rank, rank);
    if (rank == 5 && rule.mode == GridSampleRule::Mode::cubic)
      throw Error(ErrorKind::unsupported, "attribute 'mode' is 'cubic' (of volumes ONNX has nearest and linear)");
    require_dtype("input grid", grid.dtype, {DType::f32});
    if (grid.shape[0] != x.shape[0] || grid.shape[rank - 1] != rank - 2)
      throw Error(ErrorKind::invalid_model, fmt::format("grid {} for images {}", grid.shape.str(), x.shape.str()));
    Shape y = x.shape;
    for (int i = 2; i < rank; ++i) y = y.with(i, grid.shape[i - 1]);
    if (y.elems() > 0 && x.shape.elems() == 0)
      throw Error(ErrorKind::invalid_model, fmt::format("images {} have no elements", x.shape.str()));
    return {{x.dtype, y}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map = axes_kept(inputs.size(), {0, 1});
    map.inputs[1].parameter = false;
    map.inputs[1].axis[0] = 0;
    for (int i = 2; i < y.rank(); ++i)
      map.inputs[1].axis[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(i - 1);
    return map;
  }

 private:
  template <typename Enum>
  static Enum word(std::string_view name, std::string_view text, const std::string_view (&words)[3]) {
    const auto* const found = std::ranges::find(words, text);
    if (found == std::end(words))
      throw Error(ErrorKind::unsupported,
                  fmt::format("attribute '{}' is '{}' (supported: {})", name, text, fmt::join(words, ", ")));
    return static_cast<Enum>(found - std::begin(words));
  }
};

GridSampleShape shape_of(const Binding& binding) {
  const Shape &x = binding.shape(0), &grid = binding.shape(1), &y = binding.output_shape();
  const auto of_x = element_strides(x, binding.format(0)), of_grid = element_strides(grid, binding.format(1)),
             of_y = element_strides(y, binding.output_format());
  GridSampleShape s{.volumes = x.rank() == 5, .n = y[0], .c = y[1]};
  s.x_n = of_x[0], s.x_c = of_x[1];
  s.y_n = of_y[0], s.y_c = of_y[1];
  s.grid_n = of_grid[0];
  if (s.volumes) s.d = x[2], s.x_d = of_x[2], s.o = y[2], s.y_o = of_y[2], s.grid_o = of_grid[1];
  const int row = x.rank() - 2;  // the axis of rows, of x and y
  const auto at = static_cast<std::size_t>(row);
  s.h = x[row], s.w = x[row + 1], s.p = y[row], s.q = y[row + 1];
  s.x_h = of_x[at], s.x_w = of_x[at + 1];
  s.y_p = of_y[at], s.y_q = of_y[at + 1];
  s.grid_p = of_grid[at - 1], s.grid_q = of_grid[at], s.grid_xy = of_grid[at + 1];
  return s;
}

/// Points [begin, end) of an output line, whose elements in channel 0 are x, y and grid.
template <int taps, bool volumes>
void sample_points(const GridSampleRule& rule, const GridSampleShape& s, const float* x, const float* grid, float* y,
                   std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t block = 64;  // found once for all channels
  std::array<GridPoint<taps, volumes>, block> points;
  for (; begin < end; begin += block) {
    const std::int64_t count = std::min(block, end - begin);
    for (std::int64_t i = 0; i < count; ++i)
      points[static_cast<std::size_t>(i)] = GridPoint<taps, volumes>(rule, s, grid + (begin + i) * s.grid_q);
    const auto sample = [&](std::int64_t i, std::int64_t c) {
      y[(begin + i) * s.y_q + c * s.y_c] = points[static_cast<std::size_t>(i)](x + c * s.x_c);
    };
    if (s.y_c == 1) {
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t c = 0; c < s.c; ++c) sample(i, c);
    } else {
      for (std::int64_t c = 0; c < s.c; ++c)
        for (std::int64_t i = 0; i < count; ++i) sample(i, c);
    }
  }
}

/// A point between four elements of an image, all inside it.
struct Blend {
  std::array<std::int32_t, 4> at;  ///< offsets: the upper two, then the lower; -1: some of them are outside
  std::array<float, 2> row, column;

  bool inside() const { return at[0] >= 0; }
  float operator()(const float* x) const {
    return row[0] * (column[0] * x[at[0]] + column[1] * x[at[1]]) +
           row[1] * (column[0] * x[at[2]] + column[1] * x[at[3]]);
  }
};

/// Linear images: computes all points of an image first, then goes channel by channel, so that each channel stays in
/// L2, where points access it randomly.
class BoundBlends final : public BoundKernel {
 public:
  BoundBlends(const GridSampleRule& rule, const GridSampleShape& s) : rule_(rule), s_(s) {}
  static bool serves(const GridSampleRule& rule, const GridSampleShape& s) {
    return rule.mode == GridSampleRule::Mode::linear && !s.volumes &&
           s.h * s.x_h + s.w * s.x_w <= std::numeric_limits<std::int32_t>::max();
  }

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(std::min(most, s_.p * s_.q)) * sizeof(Blend);
  }
  void run(const KernelRun& run) const override {
    if (run.outputs[0].elems() == 0) return;
    for (std::int64_t n = 0; n < s_.n; ++n)
      for (std::int64_t begin = 0; begin < s_.p * s_.q; begin += most)
        blend(*run.pool, std::min(most, s_.p * s_.q - begin), run.in<float>(0) + n * s_.x_n,
              run.in<float>(1) + n * s_.grid_n + begin * s_.grid_q, run.out<float>() + n * s_.y_n + begin * s_.y_q,
              reinterpret_cast<Blend*>(run.workspace.data()));
  }

 private:
  static constexpr std::int64_t most = 1 << 16;

  // Lines of the grid and of the output are contiguous.
  void blend(ThreadPool& pool, std::int64_t count, const float* x, const float* grid, float* y, Blend* blends) const {
    pool.parallel_for(count, elementwise_grain / 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        const GridPoint<2, false> point(rule_, s_, grid + i * s_.grid_q);
        blends[i] = blend_of(point);
        if (blends[i].inside()) continue;
        for (std::int64_t c = 0; c < s_.c; ++c) y[i * s_.y_q + c * s_.y_c] = point(x + c * s_.x_c);
      }
    });
    if (s_.y_c == 1)
      return pool.parallel_for(count, std::max<std::int64_t>(1, elementwise_grain / 4 / s_.c),
                               [&](std::int64_t begin, std::int64_t end, int) {
                                 for (std::int64_t i = begin; i < end; ++i)
                                   if (const Blend at = blends[i]; at.inside())
                                     for (std::int64_t c = 0; c < s_.c; ++c) y[i * s_.y_q + c] = at(x + c * s_.x_c);
                               });
    const std::int64_t piece = std::min(count, elementwise_grain), pieces = (count + piece - 1) / piece;
    pool.parallel_for(s_.c * pieces, std::max<std::int64_t>(1, elementwise_grain / 4 / piece),
                      [&](std::int64_t first, std::int64_t last, int) {
                        for (std::int64_t unit = first; unit < last; ++unit) {
                          const std::int64_t c = unit / pieces, begin = unit % pieces * piece,
                                             end = std::min(count, begin + piece);
                          const float* const from = x + c * s_.x_c;
                          float* const to = y + c * s_.y_c;
                          for (std::int64_t i = begin; i < end; ++i)
                            if (blends[i].inside()) to[i * s_.y_q] = blends[i](from);
                        }
                      });
  }
  static Blend blend_of(const GridPoint<2, false>& point) {
    const auto& [rows, columns, slices] = point;
    if (!rows.inside || !columns.inside) return {{-1, 0, 0, 0}, {}, {}};
    Blend blend{{}, {rows.weight[0], rows.weight[1]}, {columns.weight[0], columns.weight[1]}};
    for (std::size_t i = 0; i < 4; ++i)
      blend.at[i] = static_cast<std::int32_t>(rows.offset[i / 2] + columns.offset[i % 2]);
    return blend;
  }

  GridSampleRule rule_;
  GridSampleShape s_;
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const GridSampleShape s = shape_of(binding);
  const GridSampleRule rule = binding.op<GridSampleOp>().rule;
  if (BoundBlends::serves(rule, s)) return std::make_unique<BoundBlends>(rule, s);
  const auto sample =
      with_grid_taps(rule, s.volumes, [](auto taps, auto volumes) { return &sample_points<taps, volumes>; });
  return bound([s, rule, sample](const KernelRun& run) {
    if (run.outputs[0].elems() == 0) return;
    run.pool->parallel_for(s.n * s.o * s.p, std::max<std::int64_t>(1, elementwise_grain / (8 * s.c * s.q)),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t line = begin; line < end; ++line) {
                               const std::int64_t n = line / s.p / s.o, o = line / s.p % s.o, p = line % s.p;
                               sample(rule, s, run.in<float>(0) + n * s.x_n,
                                      run.in<float>(1) + n * s.grid_n + o * s.grid_o + p * s.grid_p,
                                      run.out<float>() + n * s.y_n + o * s.y_o + p * s.y_p, 0, s.q);
                             }
                           });
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([s = shape_of(binding), rule = binding.op<GridSampleOp>().rule]([[maybe_unused]] const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::grid_sample(*run.cuda, rule, s, run.in<float>(0), run.in<float>(1), run.out<float>());
  });
}

/// X and Y in one format; the grid in its own.
Offer offer(const Problem& problem, const Target& target) {
  Offer offer;
  const bool constant = problem.inputs()[0].constant != nullptr;
  const int axes = problem.shape(0).rank() - 2;
  for (const Format& format : axes == 2 ? std::span<const Format>(nchw_or_nhwc) : nchw_only) {
    Candidate candidate;
    candidate.inputs = {constant ? formats::nchw : format, formats::nchw};
    candidate.outputs = {format};
    candidate.estimated_us = target.device.launch_us + problem.bytes() / target.device.bytes_per_us;
    // A weight and a sum round once per tap and axis; terms may exceed the sum.
    const int taps = problem.as<GridSampleOp>().rule.mode == GridSampleRule::Mode::cubic ? 4 : 2;
    candidate.tolerance =
        problem.as<GridSampleOp>().rule.mode == GridSampleRule::Mode::nearest ? 0 : 8 * 0x1p-24 * (axes * taps + 2);
    offer.candidates.push_back(std::move(candidate));
  }
  return offer;
}

Offer offer_cpu(const Problem& problem, const Target& target) {
  Offer offered = offer(problem, target);
  for (Candidate& candidate : offered.candidates)
    candidate.workspace_bytes = bind_cpu({problem, candidate, target.device})->workspace_bytes();
  return offered;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Types<float>>, .offer = offer_cpu, .bind = bind_cpu},
    {.device = DeviceKind::cuda, .types = dtypes<Types<float>>, .offer = offer, .bind = bind_cuda},
};

}  // namespace

OpParts grid_sample() { return {make_from<GridSampleOp>, kernels}; }

}  // namespace lenslet
