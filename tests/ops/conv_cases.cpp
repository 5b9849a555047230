#include "tests/ops/conv_cases.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "tools/measuring/parse_conv.h"

namespace lenslet::test {
namespace {

constexpr const char* conv_rows[] = {
    // Several pieces of an image that begin within lines (im2col_nchw): lines of 29 with pads, of 150 without.
    "2x40x31x29 -> 8, 3x3 s1 p1 g1 +bias +residual",
    "1x6x9x150 -> 10, 3x3 s2x1 p1 g1 +bias",
    // 1x1 with few filters (few_filters): a pixel's threads all with channels and not, several rounds each.
    "3x4x9x7 -> 1, 1x1 s1 p0 g1",
    "1x12x31x17 -> 3, 1x1 s1 p0 g1 +bias +relu",
    "1x24x13x10 -> 6, 1x1 s1 p0 g1 +residual",
    "1x64x40x41 -> 2, 1x1 s1 p0 g1 +bias +silu",
    "1x100x11x13 -> 5, 1x1 s1 p0 g1 +bias +residual +relu",
    "1x128x33x20 -> 4, 1x1 s1 p0 g1 +bias +hard_swish",
    "2x256x10x9 -> 8, 1x1 s1 p0 g1 +bias",
    "1x516x5x7 -> 7, 1x1 s1 p0 g1 +bias +residual +silu",
    // 1x1: images down to one pixel, every channel count, strides.
    "1x1x1x1 -> 1, 1x1 s1 p0 g1",
    "1x3x1x1 -> 7, 1x1 s1 p0 g1 +bias",
    "8x64x1x1 -> 64, 1x1 s1 p0 g1 +bias +relu",
    "1x64x13x13 -> 17, 1x1 s1 p0 g1 +bias +residual +relu",
    "3x15x7x9 -> 16, 1x1 s1 p0 g1 +residual",
    "2x16x14x14 -> 15, 1x1 s1 p0 g1 +bias +silu",
    "1x17x61x67 -> 13, 1x1 s1 p0 g1 +clip(0,6)",
    "2x64x14x13 -> 64, 1x1 s2 p0 g1 +bias",
    "1x7x9x11 -> 3, 1x1 s3x4 p0 g1",
    "1x13x5x6 -> 7, 1x1 s1 p1 g1 +bias +relu",
    "1x256x7x7 -> 64, 1x1 s1 p0 g1 +bias +gelu",
    // Few pixels, adjacent in an image: eight, and one more.
    "2x24x2x2 -> 12, 1x1 s1 p0 g1 +bias +hard_swish",
    "1x17x2x3 -> 9, 1x1 s1 p0 g1 +relu",
    "3x12x1x3 -> 5, 1x1 s1 p0 g1 +bias",
    "2x12x3x2 -> 8, 1x1 s2 p0 g1 +bias",
    // One line in the image and in the output, which reads only padding.
    "1x6x1x9 -> 5, 1x1 s4x1 p2,1,1,0 g1 +bias",

    // 2x2: even filters, one-sided pads.
    "1x3x8x7 -> 16, 2x2 s1 p0,0,1,1 g1",
    "3x16x9x8 -> 17, 2x2 s2 p0 g1 +bias",

    // 3x3 stride 1: what Winograd takes, with partial tiles of every kind.
    "1x1x1x1 -> 1, 3x3 s1 p1 g1",
    "1x1x3x3 -> 1, 3x3 s1 p0 g1",
    "1x3x9x7 -> 7, 3x3 s1 p1 g1 +bias",
    "2x7x7x9 -> 13, 3x3 s1 p1 g1 +residual +relu",
    "3x13x8x8 -> 15, 3x3 s1 p0 g1 +bias +clip(0,6)",
    "1x15x13x15 -> 17, 3x3 s1 p0,1,2,1 g1 +bias",
    "1x16x16x17 -> 16, 3x3 s1 p2,0,0,1 g1 +silu",
    "8x17x4x4 -> 64, 3x3 s1 p1 g1 +bias +residual",
    "1x64x7x7 -> 64, 3x3 s1 p1 g1 +bias +relu",
    "2x64x13x14 -> 64, 3x3 s1 p1 g1 +residual +relu",
    "1x16x61x67 -> 17, 3x3 s1 p1 g1 +bias +gelu",
    "1x256x12x12 -> 32, 3x3 s1 p1 g1 +bias",
    "1x16x5x6 -> 16, 3x3 s1 p3,4,5,2 g1",
    "1x4x2x31 -> 8, 3x3 s1 p1 g1",

    // 3x3 with strides and dilation.
    "1x3x61x67 -> 16, 3x3 s2 p1 g1 +bias +relu",
    "2x3x32x32 -> 33, 3x3 s2 p0,0,1,1 g1 +clip(0,6)",
    "1x16x15x13 -> 17, 3x3 s1x2 p1 g1",
    "1x13x17x19 -> 7, 3x3 s3x1 p1,0,0,2 g1",
    "2x7x21x20 -> 16, 3x3 s4x3 p0 g1 +bias",
    "1x16x15x16 -> 15, 3x3 s1 p2 g1 d2 +bias",
    // Phases with different numbers of tiles, and more phases than outputs (winograd on the CPU).
    "2x9x19x14 -> 24, 3x3 s1 p2x3 g1 d2x3 +residual",
    "1x24x5x12 -> 16, 3x3 s1 p6x4 g1 d6x4 +silu",
    "1x3x19x17 -> 7, 3x3 s2x1 p3,1,2,2 g1 d3x2",
    // Most taps read padding, some only padding: images in pairs (kn2col), groups, strides.
    "3x4x14x14 -> 560, 3x3 s1 p6 g1 d6 +bias +hard_swish",
    "2x10x9x7 -> 6, 5x3 s2x3 p10x4 g2 d5x4 +relu",

    // Larger and flat filters.
    "1x3x14x15 -> 13, 5x5 s1 p2 g1 +bias +relu",
    "2x16x9x9 -> 16, 5x5 s2 p1,2,2,1 g1",
    "1x1x28x28 -> 8, 5x5 s1 p2 g1 +bias +relu",
    "1x7x6x6 -> 5, 6x6 s1 p0 g1 +bias",
    "1x3x61x67 -> 64, 7x7 s2 p3 g1 +bias +relu",
    "1x1x7x7 -> 3, 7x7 s1 p0 g1",

    // 5x5 and 7x7 with stride 1 (Winograd): pads from 0 to 3, partial tiles, a single output, odd channels.
    "1x8x5x5 -> 5, 5x5 s1 p0 g1 +bias",
    "2x16x13x15 -> 17, 5x5 s1 p0 g1 +residual +relu",
    "1x21x9x11 -> 32, 5x5 s1 p1,3,2,0 g1 +silu",
    "3x34x6x5 -> 12, 5x5 s1 p3 g1 +bias +residual",
    "1x64x18x23 -> 64, 5x5 s1 p2 g1 +bias +clip(0,6)",
    "2x16x12x13 -> 16, 7x7 s1 p3 g1 +bias +relu",
    "1x7x9x8 -> 20, 7x7 s1 p0,1,2,3 g1 +residual",
    "3x32x8x9 -> 34, 7x7 s1 p0 g1 +bias +residual +silu",
    "1x18x14x21 -> 36, 7x7 s1 p2 g1 +relu",
    "1x40x31x10 -> 24, 7x7 s1 p1 g1 +bias",
    "1x3x35x31 -> 16, 11x11 s4 p2 g1 +bias",
    "1x16x12x17 -> 16, 1x7 s1 p0x3 g1 +relu",
    "1x15x17x12 -> 16, 7x1 s1 p3x0 g1 +bias",
    "1x16x9x9 -> 7, 1x3 s1 p0x1 g1",
    "1x7x2x3 -> 4, 11x7 s1 p5x3 g1",

    // Groups.
    "1x64x9x7 -> 64, 3x3 s1 p1 g4 +bias",
    "2x6x7x9 -> 15, 3x3 s2 p1 g3",
    "1x32x6x7 -> 16, 1x1 s1 p0 g2 +bias +relu",
    "1x26x5x5 -> 4, 5x5 s1 p2 g2 +residual",
    // Groups of few channels (direct_lines): several in a vector of 16 or 8 lanes, the last partial, one larger than a
    // vector; lines of one block and of several, with and without columns beside the image.
    "2x32x14x15 -> 32, 3x3 s1 p1 g8 +residual",
    "1x24x7x7 -> 24, 3x3 s1 p1 g3 +silu",
    "1x20x9x29 -> 20, 3x3 s1 p0,2,1,0 g5 +bias",
    "1x14x8x8 -> 14, 3x3 s1 p1 g7 +relu",
    "1x80x15x14 -> 80, 3x3 s2 p1 g10",
    "1x48x13x30 -> 48, 3x3 s2 p1 g2",
    "1x12x12x11 -> 36, 3x3 s1 p2 g2 d1x2",
    "1x16x11x16 -> 16, 3x3 s1 p2 g4 d2",
    "1x64x9x9 -> 64, 5x5 s1 p2 g16 +bias",
    "1x40x6x9 -> 40, 1x7 s1 p0x3 g5 +residual",

    // Lines, long windows and thin images (direct_rows, depthwise of any width): partial rows, partial sums, phases of
    // a stride, windows larger than the image, few of whose taps are inside for adjacent outputs.
    "1x1x1x900 -> 3, 1x300 s1x2 p0,7,0,5 g1 +bias",
    "1x1x9x600 -> 1, 2x70 s1 p0 g1 d1x3 +hard_swish",
    "2x3x70x4 -> 6, 9x2 s3x1 p4,1,3,0 g3 d2x1 +residual +silu",
    "1x18x5x40 -> 18, 4x11 s2x3 p3 g18 d1x2 +bias",
    "1x5x6x7 -> 7, 13x17 s1 p6x8 g1 +residual",
    "1x33x50x1 -> 33, 11x1 s1 p5x0 g33 +bias",
    "1x40x2x33 -> 40, 2x9 s1 p1,4,0,4 g40 +residual",
    "1x21x1x4000 -> 21, 1x3 s1 p0x1 g21",

    // Groups in multiples of eight channels (grouped_mma, grouped_tf32), of 4, 8, 12, 16, 24, 32, 48 and 64: partial
    // tiles and blocks of channels, windows that begin at every second and third column.
    "2x72x9x17 -> 72, 3x3 s1 p1 g18 +residual",
    "1x72x18x35 -> 72, 3x3 s2 p1 g9",
    "1x48x9x18 -> 48, 3x3 s1 p1 g4 +silu",
    "2x80x7x7 -> 80, 3x3 s1 p1 g5 +relu",
    "1x72x10x5 -> 72, 3x3 s2x1 p1 g3",
    "1x160x8x16 -> 160, 3x3 s1 p1 g5 +bias",
    "1x16x1x1 -> 16, 3x3 s1 p1 g4 +bias",
    "1x24x9x9 -> 24, 2x2 s3 p0 g3 +bias",
    "1x96x9x10 -> 96, 3x3 s1 p1 g2 +residual",
    "2x128x7x9 -> 128, 3x3 s2 p1 g2",
    "1x32x9x40 -> 32, 3x5 s1x3 p1 g4",

    // First layers (stem): one to four channels, windows that begin at odd elements, a partial block of filters.
    "2x1x19x33 -> 40, 3x3 s1 p1 g1 +bias +silu",
    "1x2x9x17 -> 65, 3x3 s2x1 p1 g1 +relu",
    "1x4x16x32 -> 96, 4x4 s4 p0 g1 +bias",
    "1x3x17x18 -> 32, 3x3 s1x3 p0,1,2,3 g1",

    // Depthwise: one to three filters a channel.
    "2x24x9x7 -> 24, 5x5 s2 p2 g24",
    "1x10x7x9 -> 10, 3x3 s1 p1 g10 +residual",
    "3x32x9x9 -> 32, 3x3 s2 p1 g32",
    "1x8x13x9 -> 8, 7x7 s1 p3 g8 +silu",
    "1x1x5x5 -> 3, 3x3 s1 p1 g1 +bias",
    "1x16x1x1 -> 16, 3x3 s1 p1 g16 +bias",
    "1x7x9x7 -> 7, 3x3 s1 p1 g7 +bias",
    "3x13x13x15 -> 13, 3x3 s2 p1 g13 +clip(0,6)",
    "1x64x7x7 -> 64, 3x3 s1 p1 g64 +bias +residual +relu",
    "2x17x14x14 -> 17, 3x3 s2 p0,0,1,1 g17 +bias +silu",
    "1x15x61x67 -> 15, 3x3 s1 p1 g15 +bias",
    "1x64x14x15 -> 64, 5x5 s1 p2 g64 +bias +hard_swish",
    "8x16x7x7 -> 16, 5x5 s1 p2 g16 +residual",
    "1x17x28x27 -> 17, 5x5 s2 p1,2,2,1 g17 +bias +silu",
    "1x16x4x3 -> 16, 5x5 s2 p2 g16",
    "1x13x19x17 -> 13, 3x3 s1 p2 g13 d2",
    "1x16x12x13 -> 16, 3x3 s1x2 p1 g16",
    "1x24x9x11 -> 24, 7x7 s1 p3 g24 +bias",
    "1x8x12x9 -> 8, 1x7 s1 p0x3 g8",
    "1x8x9x12 -> 8, 7x1 s4x1 p0 g8 +relu",
    "2x7x9x8 -> 14, 3x3 s1 p1 g7 +bias",
    "1x16x11x10 -> 48, 5x5 s2 p2 g16 +bias +residual +relu",
    "1x12x7x7 -> 12, 7x7 s1 p0 g12",
    "2x36x11x8 -> 36, 3x3 s1 p1 g36 +silu",
    "1x44x9x9 -> 44, 3x3 s2 p1 g44",
};

/// Squeeze-and-excite branches of EfficientNet-B0 and MobileNetV3: one pixel an image.
constexpr std::pair<int, int> squeezes[] = {{32, 8}, {8, 32}, {1152, 48}, {480, 120}};

constexpr const char* activations[] = {"relu", "clip(-0.5,0.75)", "leaky_relu(0.1)",      "sigmoid",
                                       "silu", "hard_swish",      "hard_sigmoid(0.2,0.5)"};

std::string conv_case_name(const ConvProblem& p) {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return a == b ? fmt::format("{}", a) : fmt::format("{}x{}", a, b);
  };
  std::string name = fmt::format("{}x{}", p.r, p.s);
  if (p.stride_h != 1 || p.stride_w != 1) name += fmt::format("_s{}", pair(p.stride_h, p.stride_w));
  if (p.dilation_h != 1 || p.dilation_w != 1) name += fmt::format("_d{}", pair(p.dilation_h, p.dilation_w));
  if (p.padded()) {
    name += fmt::format("_pad{}", pair(p.pad_top, p.pad_left));
    if (p.pad_top != p.pad_bottom || p.pad_left != p.pad_right)
      name += fmt::format("_{}", pair(p.pad_bottom, p.pad_right));
  }
  name += fmt::format("_c{}_k{}", p.c, p.k);
  if (p.groups != 1) name += fmt::format("_g{}", p.groups);
  name += fmt::format("_{}x{}", p.h, p.w);
  if (p.n != 1) name += fmt::format("_n{}", p.n);
  if (p.bias) name += "_bias";
  if (p.residual) name += "_residual";
  if (p.activation.kind != Activation::Kind::none) name += fmt::format("_{}", to_string(p.activation.kind));
  return name;
}

std::vector<ConvCase> read_cases() {
  std::vector<ConvCase> cases;
  const auto add = [&](const std::string& text) {
    const ConvProblem problem = parse_conv(text);
    cases.push_back({conv_case_name(problem), problem});
  };
  for (const char* const row : conv_rows) add(row);
  for (const auto& [c, k] : squeezes)
    for (const int n : {1, 4})
      add(fmt::format("{}x{}x1x1 -> {}, 1x1 s1 p0 g1 +bias +{}", n, c, k, k < c ? "silu" : "sigmoid"));
  // Every activation, on a dense problem, one with channels in multiples of eight and a depthwise one.
  for (const char* const activation : activations)
    for (const char* const of :
         {"2x19x9x10 -> 19, 3x3 s1 p1 g1", "2x24x9x10 -> 72, 3x3 s1 p1 g1", "2x19x9x10 -> 19, 3x3 s1 p1 g19"})
      add(fmt::format("{} +bias +residual +{}", of, activation));
  return cases;
}

}  // namespace

const std::vector<ConvCase>& conv_cases() {
  static const std::vector<ConvCase> cases = read_cases();
  return cases;
}

std::vector<ConvProblem> convs(const std::vector<std::string>& rows) {
  std::vector<ConvProblem> problems;
  for (const std::string& row : rows) problems.push_back(parse_conv(row));
  return problems;
}

}  // namespace lenslet::test
