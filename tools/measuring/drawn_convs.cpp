// Convolutions drawn at random, as networks that nobody has seen may have them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "tools/measuring/conv_sets.h"
#include "tools/measuring/draw.h"

namespace lenslet::tool {
namespace {

/// A draw beyond what most layers of networks at batch 64 take is drawn again.
constexpr double most_flops = 1e11, most_elements = 3e7, most_weights = 5e6;

/// The high bits of an engine, so that the same seed draws the same with every standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) { engine_.discard(8); }
  double unit() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }
  bool one_in(int many) { return unit() * many < 1; }
  /// low to high, small ones as likely as large ones an octave.
  std::int64_t octaves(std::int64_t low, std::int64_t high) {
    const double log_low = std::log2(low), span = std::log2(high + 1) - log_low;
    return std::clamp(static_cast<std::int64_t>(std::exp2(log_low + span * unit())), low, high);
  }
  template <typename T, std::size_t count>
  T of(const std::array<T, count>& choices) {
    return choices[static_cast<std::size_t>(unit() * count)];
  }

 private:
  FastEngine engine_;
};

using Window = std::array<std::int64_t, 2>;

/// Of every residue as often as of 8 and 16.
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
    if (groups == 0) {  // depthwise, of one filter a channel or more
      groups = c;
      k = c * (draws.one_in(3) ? draws.octaves(2, 4) : 1);
    } else {
      c = std::max<std::int64_t>(c / groups, 1) * groups;
      k = std::max<std::int64_t>(k / groups, 1) * groups;
    }
  }
  const std::int64_t span_h = (r - 1) * dilation, span_w = (s - 1) * dilation;
  // Pads that keep the sides; or none, where the image is large enough.
  const bool padded = span_h >= h || span_w >= w || !draws.one_in(4);
  const std::int64_t pad_h = padded ? (span_h + 1) / 2 : 0, pad_w = padded ? (span_w + 1) / 2 : 0;
  return resolve_conv({n, c, h, w}, {k, c / groups, r, s},
                      {.stride = {stride, stride},
                       .dilation = {dilation, dilation},
                       .pads = {pad_h, pad_w, pad_h, pad_w},
                       .groups = groups});
}

bool moderate(const ConvProblem& p) {
  const auto elements = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c) * static_cast<double>(d);
  };
  return p.flops() <= most_flops && elements(p.n, p.c, p.h, p.w) <= most_elements &&
         elements(p.n, p.k, p.p, p.q) <= most_elements && elements(p.k, p.group_c(), p.r, p.s) <= most_weights;
}

}  // namespace

std::vector<NamedConv> drawn_convs(int count, std::uint64_t seed) {
  std::vector<NamedConv> list;
  for (int i = 0; i < count; ++i) {
    Draws draws(seed * 1000003 + static_cast<std::uint64_t>(i));
    ConvProblem problem = draw_problem(draws);
    while (!moderate(problem)) problem = draw_problem(draws);
    list.push_back({fmt::format("drawn.{}.{}", seed, i), problem});
  }
  return list;
}

}  // namespace lenslet::tool
