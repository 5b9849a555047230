// Random convolutions, such as unseen networks may contain.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "oracle/draw.h"
#include "tools/measuring/conv_sets.h"

namespace lenslet::tool {
namespace {

/// Limits that most layers of networks meet at batch 64; a draw beyond them is repeated.
constexpr double most_flops = 1e11, most_elements = 3e7, most_weights = 5e6;
/// Odd shapes are limited to be quick, since every algorithm is measured, including the slowest.
constexpr std::int64_t least_odd_flops = 2'000'000, most_odd_flops = 3'000'000'000;

/// Uses the high bits of an engine, so that a seed draws the same with every standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) { engine_.discard(8); }
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }
  bool one_in(int many) { return unit() * many < 1; }
  /// low to high, each octave equally likely.
  std::int64_t octaves(std::int64_t low, std::int64_t high) {
    const double log_low = std::log2(low), span = std::log2(high + 1) - log_low;
    return std::clamp(static_cast<std::int64_t>(std::exp2(log_low + span * unit())), low, high);
  }
  template <typename T, std::size_t count>
  T of(const std::array<T, count>& choices) {
    return choices[static_cast<std::size_t>(unit() * count)];
  }

 private:
  oracle::FastEngine engine_;
};

using Window = std::array<std::int64_t, 2>;

/// Any residue as often as multiples of 8 and 16.
std::int64_t draw_channels(Draws& draws) {
  const std::int64_t channels = draws.octaves(3, 1024), unit = draws.of(std::array<std::int64_t, 4>{1, 1, 8, 16});
  return std::max(unit, channels / unit * unit);
}

ConvProblem draw_problem(Draws& draws) {
  constexpr Window square[] = {{1, 1}, {3, 3}, {3, 3}, {3, 3}, {5, 5}, {5, 5}, {7, 7}};
  constexpr Window others[] = {{1, 7}, {7, 1}, {1, 3}, {3, 1}, {1, 5}, {5, 1}, {2, 2}, {4, 4}, {6, 6}, {9, 9}};
  const std::int64_t n = draws.of(std::array<std::int64_t, 7>{1, 2, 4, 8, 16, 32, 64});
  const std::int64_t h = draws.octaves(5, 160), w = draws.one_in(2) ? draws.octaves(5, 160) : h;
  std::int64_t c = draw_channels(draws), k = draw_channels(draws), groups = 1;
  auto [r, s] = draws.one_in(5) ? draws.of(std::to_array(others)) : draws.of(std::to_array(square));
  const std::int64_t stride = draws.of(std::array<std::int64_t, 10>{1, 1, 1, 1, 1, 1, 1, 2, 2, 2});
  const std::int64_t dilation = r * s > 1 && draws.one_in(8) ? 2 : 1;
  if (draws.one_in(5)) {
    groups = draws.of(std::array<std::int64_t, 5>{0, 0, 2, 4, 32});
    if (groups == 0) {  // depthwise, with one or more filters a channel
      groups = c;
      k = c * (draws.one_in(3) ? draws.octaves(2, 4) : 1);
    } else {
      c = std::max<std::int64_t>(c / groups, 1) * groups;
      k = std::max<std::int64_t>(k / groups, 1) * groups;
    }
  }
  const std::int64_t span_h = (r - 1) * dilation, span_w = (s - 1) * dilation;
  // Same-size pads; or none, if the image is large enough.
  const bool padded = span_h >= h || span_w >= w || !draws.one_in(4);
  const std::int64_t pad_h = padded ? (span_h + 1) / 2 : 0, pad_w = padded ? (span_w + 1) / 2 : 0;
  return resolve_conv({n, c, h, w}, {k, c / groups, r, s},
                      {.stride = {stride, stride},
                       .dilation = {dilation, dilation},
                       .pads = {pad_h, pad_w, pad_h, pad_w},
                       .groups = groups});
}

/// The parameters of an odd shape, before pads.
struct OddShape {
  std::int64_t c, k, h, w, r, s, groups = 1;
  std::int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
};

OddShape transposed(const OddShape& o) {
  return {o.c, o.k, o.w, o.h, o.s, o.r, o.groups, o.stride_w, o.stride_h, o.dilation_w, o.dilation_h};
}

/// Depthwise with one or more filters a channel.
void make_depthwise(Draws& draws, OddShape& o) {
  o.groups = o.c;
  o.k = o.c * (draws.one_in(4) ? draws.octaves(2, 8) : 1);
}

/// Filters on waveforms of one or two channels, and their strides: spectra, SincNet, wavelets.
OddShape draw_waveform(Draws& draws) {
  const std::int64_t s = draws.octaves(8, 512);
  return {.c = draws.one_in(4) ? 2 : 1,
          .k = draws.one_in(3) ? 1 : draws.octaves(2, 256),
          .h = draws.one_in(4) ? draws.octaves(2, 16) : 1,
          .w = draws.octaves(1000, 32000),
          .r = 1,
          .s = s,
          .stride_w = draws.one_in(3) ? 1 : draws.octaves(1, s)};
}

OddShape draw_long_depthwise(Draws& draws) {
  OddShape o{
      .c = draws.octaves(1, 512), .k = 0, .h = 1, .w = draws.octaves(32, 8000), .r = 1, .s = draws.octaves(4, 256)};
  if (draws.one_in(3)) o.h = draws.octaves(2, 16);
  o.stride_w = draws.one_in(2) ? 1 : draws.octaves(1, 8);
  if (o.stride_w == 1 && draws.one_in(3)) o.dilation_w = draws.octaves(2, 16);
  make_depthwise(draws, o);
  return o;
}

/// A layer of a 1-D network.
OddShape draw_one_line(Draws& draws) {
  OddShape o{.c = draw_channels(draws),
             .k = draw_channels(draws),
             .h = 1,
             .w = draws.octaves(32, 8000),
             .r = 1,
             .s = draws.octaves(2, 64)};
  o.stride_w = draws.one_in(2) ? 1 : draws.octaves(1, 8);
  if (o.stride_w == 1 && draws.one_in(2)) o.dilation_w = draws.octaves(2, 64);
  return o;
}

/// Few channels, with one side much longer than the other.
OddShape draw_thin(Draws& draws) {
  OddShape o{.c = draws.octaves(1, 32),
             .k = draws.octaves(1, 64),
             .h = draws.octaves(2, 12),
             .w = draws.octaves(300, 8000),
             .r = 0,
             .s = draws.octaves(1, 16)};
  o.r = draws.octaves(1, std::min<std::int64_t>(o.h, 7));
  o.stride_h = draws.one_in(4) ? 2 : 1;
  o.stride_w = draws.one_in(3) ? draws.octaves(2, 4) : 1;
  if (draws.one_in(4)) make_depthwise(draws, o);
  return o;
}

/// A window about as large as the image, or larger.
OddShape draw_large_window(Draws& draws) {
  OddShape o{.c = draws.octaves(1, 128),
             .k = draws.octaves(1, 128),
             .h = draws.octaves(6, 64),
             .w = 0,
             .r = draws.octaves(8, 40),
             .s = 0};
  o.w = draws.one_in(2) ? o.h : draws.octaves(6, 64);
  o.s = draws.one_in(2) ? o.r : draws.octaves(8, 40);
  o.stride_h = o.stride_w = draws.one_in(3) ? draws.octaves(2, 8) : 1;
  if (draws.one_in(2)) make_depthwise(draws, o);
  return o;
}

OddShape draw_tiny_image(Draws& draws) {
  OddShape o{.c = draws.octaves(64, 2048),
             .k = draws.octaves(64, 2048),
             .h = draws.octaves(1, 6),
             .w = draws.octaves(1, 6),
             .r = 0,
             .s = 0};
  o.r = draws.of(std::array<std::int64_t, 4>{1, 2, 3, 5});
  o.s = draws.one_in(3) ? 1 : o.r;
  if (draws.one_in(3)) {
    o.groups = draws.octaves(2, 32);
    o.c = (o.c + o.groups - 1) / o.groups * o.groups;
    o.k = (o.k + o.groups - 1) / o.groups * o.groups;
  }
  return o;
}

/// Few channels in and out: filters of pictures, single planes.
OddShape draw_few_channels(Draws& draws) {
  OddShape o{.c = draws.octaves(1, 6),
             .k = draws.octaves(1, 12),
             .h = draws.octaves(20, 400),
             .w = draws.octaves(20, 400),
             .r = draws.octaves(1, 15),
             .s = 0};
  o.s = draws.one_in(2) ? o.r : draws.octaves(1, 15);
  o.stride_h = o.stride_w = draws.one_in(3) ? draws.octaves(2, 4) : 1;
  o.dilation_h = o.dilation_w = draws.one_in(5) ? 2 : 1;
  if (draws.one_in(4)) make_depthwise(draws, o);
  return o;
}

ConvProblem draw_odd_problem(Draws& draws) {
  constexpr OddShape (*kinds[])(Draws&) = {draw_waveform,     draw_long_depthwise, draw_one_line,    draw_thin,
                                           draw_large_window, draw_tiny_image,     draw_few_channels};
  OddShape o = kinds[static_cast<std::size_t>(draws.unit() * std::size(kinds))](draws);
  if (draws.one_in(5)) o = transposed(o);
  const std::int64_t n = draws.of(std::array<std::int64_t, 8>{1, 1, 1, 1, 1, 2, 3, 5});
  const std::int64_t span_h = (o.r - 1) * o.dilation_h, span_w = (o.s - 1) * o.dilation_w;
  const bool padded = span_h >= o.h || span_w >= o.w || draws.one_in(2);
  const std::int64_t pad_h = padded ? (span_h + 1) / 2 : 0, pad_w = padded ? (span_w + 1) / 2 : 0;
  return resolve_conv({n, o.c, o.h, o.w}, {o.k, o.c / o.groups, o.r, o.s},
                      {.stride = {o.stride_h, o.stride_w},
                       .dilation = {o.dilation_h, o.dilation_w},
                       .pads = {pad_h, pad_w, pad_h, pad_w},
                       .groups = o.groups});
}

bool moderate(const ConvProblem& p) {
  const auto elements = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c) * static_cast<double>(d);
  };
  return elements(p.n, p.c, p.h, p.w) <= most_elements && elements(p.n, p.k, p.p, p.q) <= most_elements &&
         elements(p.k, p.group_c(), p.r, p.s) <= most_weights;
}

}  // namespace

std::vector<NamedConv> drawn_convs(int count, std::uint64_t seed, Shapes shapes) {
  const bool odd = shapes == Shapes::odd;
  std::vector<NamedConv> list;
  for (int i = 0; i < count; ++i) {
    Draws draws(seed * 1000003 + static_cast<std::uint64_t>(i));
    const auto draw = [&] { return odd ? draw_odd_problem(draws) : draw_problem(draws); };
    // Small ones as often as large ones.
    const auto most = odd ? static_cast<double>(draws.octaves(least_odd_flops, most_odd_flops)) : most_flops;
    ConvProblem problem = draw();
    while (!moderate(problem) || problem.flops() > most || (odd && problem.flops() < most / 16)) problem = draw();
    list.push_back({fmt::format("{}.{}.{}", odd ? "odd" : "drawn", seed, i), problem});
  }
  return list;
}

}  // namespace lenslet::tool
