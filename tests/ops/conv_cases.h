#pragma once
// Awkward convolution problems, as data: for the test of all algorithms and for benches.

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/conv/problem.h"

namespace lenslet::test {

struct ConvCase {
  std::string name;  ///< unique: "3x3_pad1_c64_k64_13x13"
  ConvProblem problem;
};

/// What a row of the table says; everything else has the defaults.
struct ConvRow {
  std::int64_t n = 1, c = 1, h = 1, w = 1, k = 1, r = 1, s = 1;
  std::array<std::int64_t, 2> stride{1, 1}, dilation{1, 1};
  std::array<std::int64_t, 4> pads{0, 0, 0, 0};  ///< top, left, bottom, right
  std::int64_t groups = 1;
  bool bias = false, residual = false;
  Activation activation = {};
};

inline std::string conv_case_name(const ConvProblem& p) {
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

inline std::vector<ConvCase> conv_cases() {
  using Kind = Activation::Kind;
  const Activation relu{Kind::relu, 0, 0}, relu6{Kind::clip, 0, 6}, silu{Kind::silu, 0, 0};
  const Activation hard_swish{Kind::hard_swish, 1.0F / 6, 0.5F};
  const std::array<std::int64_t, 4> pad1{1, 1, 1, 1}, pad2{2, 2, 2, 2}, pad3{3, 3, 3, 3};

  std::vector<ConvRow> rows = {
      // Several pieces of an image that begin within its lines (im2col_nchw): lines of 29 with their pads, of 150
      // without.
      {.n = 2, .c = 40, .h = 31, .w = 29, .k = 8, .r = 3, .s = 3, .pads = pad1, .bias = true, .residual = true},
      {.c = 6, .h = 9, .w = 150, .k = 10, .r = 3, .s = 3, .stride = {2, 1}, .pads = pad1, .bias = true},
      // 1x1 with few filters (few_filters): threads of a pixel that all have channels and not, and several turns each.
      {.n = 3, .c = 4, .h = 9, .w = 7, .k = 1},
      {.c = 12, .h = 31, .w = 17, .k = 3, .bias = true, .activation = relu},
      {.c = 24, .h = 13, .w = 10, .k = 6, .residual = true},
      {.c = 64, .h = 40, .w = 41, .k = 2, .bias = true, .activation = silu},
      {.c = 100, .h = 11, .w = 13, .k = 5, .bias = true, .residual = true, .activation = relu},
      {.c = 128, .h = 33, .w = 20, .k = 4, .bias = true, .activation = hard_swish},
      {.n = 2, .c = 256, .h = 10, .w = 9, .k = 8, .bias = true},
      {.c = 516, .h = 5, .w = 7, .k = 7, .bias = true, .residual = true, .activation = silu},
      // 1x1: images down to one pixel, every channel count, strides.
      {.n = 1, .c = 1, .h = 1, .w = 1, .k = 1},
      {.n = 1, .c = 3, .h = 1, .w = 1, .k = 7, .bias = true},
      {.n = 8, .c = 64, .h = 1, .w = 1, .k = 64, .bias = true, .activation = relu},
      {.n = 1, .c = 64, .h = 13, .w = 13, .k = 17, .bias = true, .residual = true, .activation = relu},
      {.n = 3, .c = 15, .h = 7, .w = 9, .k = 16, .residual = true},
      {.n = 2, .c = 16, .h = 14, .w = 14, .k = 15, .bias = true, .activation = silu},
      {.n = 1, .c = 17, .h = 61, .w = 67, .k = 13, .activation = relu6},
      {.n = 2, .c = 64, .h = 14, .w = 13, .k = 64, .stride = {2, 2}, .bias = true},
      {.n = 1, .c = 7, .h = 9, .w = 11, .k = 3, .stride = {3, 4}},
      {.n = 1, .c = 13, .h = 5, .w = 6, .k = 7, .pads = pad1, .bias = true, .activation = relu},
      {.n = 1, .c = 256, .h = 7, .w = 7, .k = 64, .bias = true, .activation = hard_swish},
      // Few pixels, side by side in an image: eight, and one more.
      {.n = 2, .c = 24, .h = 2, .w = 2, .k = 12, .bias = true, .activation = hard_swish},
      {.n = 1, .c = 17, .h = 2, .w = 3, .k = 9, .activation = relu},
      {.n = 3, .c = 12, .h = 1, .w = 3, .k = 5, .bias = true},
      {.n = 2, .c = 12, .h = 3, .w = 2, .k = 8, .stride = {2, 2}, .bias = true},
      // One line, of the image and of the output, which sees padding alone.
      {.n = 1, .c = 6, .h = 1, .w = 9, .k = 5, .stride = {4, 1}, .pads = {2, 1, 1, 0}, .bias = true},

      // 2x2: even filters, one-sided pads.
      {.n = 1, .c = 3, .h = 8, .w = 7, .k = 16, .r = 2, .s = 2, .pads = {0, 0, 1, 1}},
      {.n = 3, .c = 16, .h = 9, .w = 8, .k = 17, .r = 2, .s = 2, .stride = {2, 2}, .bias = true},

      // 3x3 stride 1: what Winograd takes, with partial tiles of every kind.
      {.n = 1, .c = 1, .h = 1, .w = 1, .k = 1, .r = 3, .s = 3, .pads = pad1},
      {.n = 1, .c = 1, .h = 3, .w = 3, .k = 1, .r = 3, .s = 3},
      {.n = 1, .c = 3, .h = 9, .w = 7, .k = 7, .r = 3, .s = 3, .pads = pad1, .bias = true},
      {.n = 2, .c = 7, .h = 7, .w = 9, .k = 13, .r = 3, .s = 3, .pads = pad1, .residual = true, .activation = relu},
      {.n = 3, .c = 13, .h = 8, .w = 8, .k = 15, .r = 3, .s = 3, .bias = true, .activation = relu6},
      {.n = 1, .c = 15, .h = 13, .w = 15, .k = 17, .r = 3, .s = 3, .pads = {0, 1, 2, 1}, .bias = true},
      {.n = 1, .c = 16, .h = 16, .w = 17, .k = 16, .r = 3, .s = 3, .pads = {2, 0, 0, 1}, .activation = silu},
      {.n = 8, .c = 17, .h = 4, .w = 4, .k = 64, .r = 3, .s = 3, .pads = pad1, .bias = true, .residual = true},
      {.n = 1, .c = 64, .h = 7, .w = 7, .k = 64, .r = 3, .s = 3, .pads = pad1, .bias = true, .activation = relu},
      {.n = 2, .c = 64, .h = 13, .w = 14, .k = 64, .r = 3, .s = 3, .pads = pad1, .residual = true, .activation = relu},
      {.n = 1,
       .c = 16,
       .h = 61,
       .w = 67,
       .k = 17,
       .r = 3,
       .s = 3,
       .pads = pad1,
       .bias = true,
       .activation = hard_swish},
      {.n = 1, .c = 256, .h = 12, .w = 12, .k = 32, .r = 3, .s = 3, .pads = pad1, .bias = true},
      {.n = 1, .c = 16, .h = 5, .w = 6, .k = 16, .r = 3, .s = 3, .pads = {3, 4, 5, 2}},
      {.n = 1, .c = 4, .h = 2, .w = 31, .k = 8, .r = 3, .s = 3, .pads = pad1},

      // 3x3 with strides and dilation.
      {.n = 1,
       .c = 3,
       .h = 61,
       .w = 67,
       .k = 16,
       .r = 3,
       .s = 3,
       .stride = {2, 2},
       .pads = pad1,
       .bias = true,
       .activation = relu},
      {.n = 2,
       .c = 3,
       .h = 32,
       .w = 32,
       .k = 33,
       .r = 3,
       .s = 3,
       .stride = {2, 2},
       .pads = {0, 0, 1, 1},
       .activation = relu6},
      {.n = 1, .c = 16, .h = 15, .w = 13, .k = 17, .r = 3, .s = 3, .stride = {1, 2}, .pads = pad1},
      {.n = 1, .c = 13, .h = 17, .w = 19, .k = 7, .r = 3, .s = 3, .stride = {3, 1}, .pads = {1, 0, 0, 2}},
      {.n = 2, .c = 7, .h = 21, .w = 20, .k = 16, .r = 3, .s = 3, .stride = {4, 3}, .bias = true},
      {.n = 1, .c = 16, .h = 15, .w = 16, .k = 15, .r = 3, .s = 3, .dilation = {2, 2}, .pads = pad2, .bias = true},
      // Phases of unequal numbers of tiles, and more of them than outputs (winograd on the CPU).
      {.n = 2,
       .c = 9,
       .h = 19,
       .w = 14,
       .k = 24,
       .r = 3,
       .s = 3,
       .dilation = {2, 3},
       .pads = {2, 3, 2, 3},
       .residual = true},
      {.n = 1,
       .c = 24,
       .h = 5,
       .w = 12,
       .k = 16,
       .r = 3,
       .s = 3,
       .dilation = {6, 4},
       .pads = {6, 4, 6, 4},
       .activation = silu},
      {.n = 1,
       .c = 3,
       .h = 19,
       .w = 17,
       .k = 7,
       .r = 3,
       .s = 3,
       .stride = {2, 1},
       .dilation = {3, 2},
       .pads = {3, 1, 2, 2}},
      // Most taps meet padding, some nothing else: images in pairs (kn2col), groups, strides.
      {.n = 3,
       .c = 4,
       .h = 14,
       .w = 14,
       .k = 560,
       .r = 3,
       .s = 3,
       .dilation = {6, 6},
       .pads = {6, 6, 6, 6},
       .bias = true,
       .activation = hard_swish},
      {.n = 2,
       .c = 10,
       .h = 9,
       .w = 7,
       .k = 6,
       .r = 5,
       .s = 3,
       .stride = {2, 3},
       .dilation = {5, 4},
       .pads = {10, 4, 10, 4},
       .groups = 2,
       .activation = relu},

      // Larger and flat filters.
      {.n = 1, .c = 3, .h = 14, .w = 15, .k = 13, .r = 5, .s = 5, .pads = pad2, .bias = true, .activation = relu},
      {.n = 2, .c = 16, .h = 9, .w = 9, .k = 16, .r = 5, .s = 5, .stride = {2, 2}, .pads = {1, 2, 2, 1}},
      {.n = 1, .c = 1, .h = 28, .w = 28, .k = 8, .r = 5, .s = 5, .pads = pad2, .bias = true, .activation = relu},
      {.n = 1, .c = 7, .h = 6, .w = 6, .k = 5, .r = 6, .s = 6, .bias = true},
      {.n = 1,
       .c = 3,
       .h = 61,
       .w = 67,
       .k = 64,
       .r = 7,
       .s = 7,
       .stride = {2, 2},
       .pads = pad3,
       .bias = true,
       .activation = relu},
      {.n = 1, .c = 1, .h = 7, .w = 7, .k = 3, .r = 7, .s = 7},

      // 5x5 and 7x7 of stride 1 (Winograd): no pads to 3, partial tiles, one output alone, channels that are odd.
      {.n = 1, .c = 8, .h = 5, .w = 5, .k = 5, .r = 5, .s = 5, .bias = true},
      {.n = 2, .c = 16, .h = 13, .w = 15, .k = 17, .r = 5, .s = 5, .residual = true, .activation = relu},
      {.n = 1, .c = 21, .h = 9, .w = 11, .k = 32, .r = 5, .s = 5, .pads = {1, 3, 2, 0}, .activation = silu},
      {.n = 3, .c = 34, .h = 6, .w = 5, .k = 12, .r = 5, .s = 5, .pads = pad3, .bias = true, .residual = true},
      {.n = 1, .c = 64, .h = 18, .w = 23, .k = 64, .r = 5, .s = 5, .pads = pad2, .bias = true, .activation = relu6},
      {.n = 2, .c = 16, .h = 12, .w = 13, .k = 16, .r = 7, .s = 7, .pads = pad3, .bias = true, .activation = relu},
      {.n = 1, .c = 7, .h = 9, .w = 8, .k = 20, .r = 7, .s = 7, .pads = {0, 1, 2, 3}, .residual = true},
      {.n = 3, .c = 32, .h = 8, .w = 9, .k = 34, .r = 7, .s = 7, .bias = true, .residual = true, .activation = silu},
      {.n = 1, .c = 18, .h = 14, .w = 21, .k = 36, .r = 7, .s = 7, .pads = pad2, .activation = relu},
      {.n = 1, .c = 40, .h = 31, .w = 10, .k = 24, .r = 7, .s = 7, .pads = pad1, .bias = true},
      {.n = 1, .c = 3, .h = 35, .w = 31, .k = 16, .r = 11, .s = 11, .stride = {4, 4}, .pads = pad2, .bias = true},
      {.n = 1, .c = 16, .h = 12, .w = 17, .k = 16, .r = 1, .s = 7, .pads = {0, 3, 0, 3}, .activation = relu},
      {.n = 1, .c = 15, .h = 17, .w = 12, .k = 16, .r = 7, .s = 1, .pads = {3, 0, 3, 0}, .bias = true},
      {.n = 1, .c = 16, .h = 9, .w = 9, .k = 7, .r = 1, .s = 3, .pads = {0, 1, 0, 1}},
      {.n = 1, .c = 7, .h = 2, .w = 3, .k = 4, .r = 11, .s = 7, .pads = {5, 3, 5, 3}},

      // Groups.
      {.n = 1, .c = 64, .h = 9, .w = 7, .k = 64, .r = 3, .s = 3, .pads = pad1, .groups = 4, .bias = true},
      {.n = 2, .c = 6, .h = 7, .w = 9, .k = 15, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 3},
      {.n = 1, .c = 32, .h = 6, .w = 7, .k = 16, .groups = 2, .bias = true, .activation = relu},
      {.n = 1, .c = 26, .h = 5, .w = 5, .k = 4, .r = 5, .s = 5, .pads = pad2, .groups = 2, .residual = true},
      // Groups of few channels (direct_lines): several a vector of 16 or 8 lanes, the last in part, one of more than
      // that;
      // lines of one block and of several, with and without columns beside the image.
      {.n = 2, .c = 32, .h = 14, .w = 15, .k = 32, .r = 3, .s = 3, .pads = pad1, .groups = 8, .residual = true},
      {.n = 1, .c = 24, .h = 7, .w = 7, .k = 24, .r = 3, .s = 3, .pads = pad1, .groups = 3, .activation = silu},
      {.n = 1, .c = 20, .h = 9, .w = 29, .k = 20, .r = 3, .s = 3, .pads = {0, 2, 1, 0}, .groups = 5, .bias = true},
      {.n = 1, .c = 14, .h = 8, .w = 8, .k = 14, .r = 3, .s = 3, .pads = pad1, .groups = 7, .activation = relu},
      {.n = 1, .c = 80, .h = 15, .w = 14, .k = 80, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 10},
      {.n = 1, .c = 48, .h = 13, .w = 30, .k = 48, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 2},
      {.n = 1, .c = 12, .h = 12, .w = 11, .k = 36, .r = 3, .s = 3, .dilation = {1, 2}, .pads = pad2, .groups = 2},
      {.n = 1, .c = 16, .h = 11, .w = 16, .k = 16, .r = 3, .s = 3, .dilation = {2, 2}, .pads = pad2, .groups = 4},
      {.n = 1, .c = 64, .h = 9, .w = 9, .k = 64, .r = 5, .s = 5, .pads = pad2, .groups = 16, .bias = true},
      {.n = 1, .c = 40, .h = 6, .w = 9, .k = 40, .r = 1, .s = 7, .pads = {0, 3, 0, 3}, .groups = 5, .residual = true},

      // Lines, long windows and upright images (direct_rows, depthwise of any width): parts of a row, sums in parts,
      // the
      // phases of a stride, windows larger than the image, few of whose taps lie in it for neighbours at once.
      {.n = 1,
       .c = 1,
       .h = 1,
       .w = 900,
       .k = 3,
       .r = 1,
       .s = 300,
       .stride = {1, 2},
       .pads = {0, 7, 0, 5},
       .bias = true},
      {.n = 1, .c = 1, .h = 9, .w = 600, .k = 1, .r = 2, .s = 70, .dilation = {1, 3}, .activation = hard_swish},
      {.n = 2,
       .c = 3,
       .h = 70,
       .w = 4,
       .k = 6,
       .r = 9,
       .s = 2,
       .stride = {3, 1},
       .dilation = {2, 1},
       .pads = {4, 1, 3, 0},
       .groups = 3,
       .residual = true,
       .activation = silu},
      {.n = 1,
       .c = 18,
       .h = 5,
       .w = 40,
       .k = 18,
       .r = 4,
       .s = 11,
       .stride = {2, 3},
       .dilation = {1, 2},
       .pads = pad3,
       .groups = 18,
       .bias = true},
      {.n = 1, .c = 5, .h = 6, .w = 7, .k = 7, .r = 13, .s = 17, .pads = {6, 8, 6, 8}, .residual = true},
      {.n = 1, .c = 33, .h = 50, .w = 1, .k = 33, .r = 11, .s = 1, .pads = {5, 0, 5, 0}, .groups = 33, .bias = true},
      {.n = 1, .c = 40, .h = 2, .w = 33, .k = 40, .r = 2, .s = 9, .pads = {1, 4, 0, 4}, .groups = 40, .residual = true},
      {.n = 1, .c = 21, .h = 1, .w = 4000, .k = 21, .r = 1, .s = 3, .pads = {0, 1, 0, 1}, .groups = 21},

      // Groups in eights of channels (grouped_mma, grouped_tf32), of 4, 8, 12, 16, 24, 32, 48 and 64: tiles and blocks
      // of channels in part, windows that begin at every second and third column.
      {.n = 2, .c = 72, .h = 9, .w = 17, .k = 72, .r = 3, .s = 3, .pads = pad1, .groups = 18, .residual = true},
      {.n = 1, .c = 72, .h = 18, .w = 35, .k = 72, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 9},
      {.n = 1, .c = 48, .h = 9, .w = 18, .k = 48, .r = 3, .s = 3, .pads = pad1, .groups = 4, .activation = silu},
      {.n = 2, .c = 80, .h = 7, .w = 7, .k = 80, .r = 3, .s = 3, .pads = pad1, .groups = 5, .activation = relu},
      {.n = 1, .c = 72, .h = 10, .w = 5, .k = 72, .r = 3, .s = 3, .stride = {2, 1}, .pads = pad1, .groups = 3},
      {.n = 1, .c = 160, .h = 8, .w = 16, .k = 160, .r = 3, .s = 3, .pads = pad1, .groups = 5, .bias = true},
      {.n = 1, .c = 16, .h = 1, .w = 1, .k = 16, .r = 3, .s = 3, .pads = pad1, .groups = 4, .bias = true},
      {.n = 1, .c = 24, .h = 9, .w = 9, .k = 24, .r = 2, .s = 2, .stride = {3, 3}, .groups = 3, .bias = true},
      {.n = 1, .c = 96, .h = 9, .w = 10, .k = 96, .r = 3, .s = 3, .pads = pad1, .groups = 2, .residual = true},
      {.n = 2, .c = 128, .h = 7, .w = 9, .k = 128, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 2},
      {.n = 1, .c = 32, .h = 9, .w = 40, .k = 32, .r = 3, .s = 5, .stride = {1, 3}, .pads = pad1, .groups = 4},

      // First layers (stem): one to four channels, windows that begin at odd elements, filters beside a block.
      {.n = 2, .c = 1, .h = 19, .w = 33, .k = 40, .r = 3, .s = 3, .pads = pad1, .bias = true, .activation = silu},
      {.n = 1, .c = 2, .h = 9, .w = 17, .k = 65, .r = 3, .s = 3, .stride = {2, 1}, .pads = pad1, .activation = relu},
      {.n = 1, .c = 4, .h = 16, .w = 32, .k = 96, .r = 4, .s = 4, .stride = {4, 4}, .bias = true},
      {.n = 1, .c = 3, .h = 17, .w = 18, .k = 32, .r = 3, .s = 3, .stride = {1, 3}, .pads = {0, 1, 2, 3}},

      // Depthwise: one to three filters a channel.
      {.n = 2, .c = 24, .h = 9, .w = 7, .k = 24, .r = 5, .s = 5, .stride = {2, 2}, .pads = pad2, .groups = 24},
      {.n = 1, .c = 10, .h = 7, .w = 9, .k = 10, .r = 3, .s = 3, .pads = pad1, .groups = 10, .residual = true},
      {.n = 3, .c = 32, .h = 9, .w = 9, .k = 32, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 32},
      {.n = 1, .c = 8, .h = 13, .w = 9, .k = 8, .r = 7, .s = 7, .pads = pad3, .groups = 8, .activation = silu},
      {.n = 1, .c = 1, .h = 5, .w = 5, .k = 3, .r = 3, .s = 3, .pads = pad1, .groups = 1, .bias = true},
      {.n = 1, .c = 16, .h = 1, .w = 1, .k = 16, .r = 3, .s = 3, .pads = pad1, .groups = 16, .bias = true},
      {.n = 1, .c = 7, .h = 9, .w = 7, .k = 7, .r = 3, .s = 3, .pads = pad1, .groups = 7, .bias = true},
      {.n = 3,
       .c = 13,
       .h = 13,
       .w = 15,
       .k = 13,
       .r = 3,
       .s = 3,
       .stride = {2, 2},
       .pads = pad1,
       .groups = 13,
       .activation = relu6},
      {.n = 1,
       .c = 64,
       .h = 7,
       .w = 7,
       .k = 64,
       .r = 3,
       .s = 3,
       .pads = pad1,
       .groups = 64,
       .bias = true,
       .residual = true,
       .activation = relu},
      {.n = 2,
       .c = 17,
       .h = 14,
       .w = 14,
       .k = 17,
       .r = 3,
       .s = 3,
       .stride = {2, 2},
       .pads = {0, 0, 1, 1},
       .groups = 17,
       .bias = true,
       .activation = silu},
      {.n = 1, .c = 15, .h = 61, .w = 67, .k = 15, .r = 3, .s = 3, .pads = pad1, .groups = 15, .bias = true},
      {.n = 1,
       .c = 64,
       .h = 14,
       .w = 15,
       .k = 64,
       .r = 5,
       .s = 5,
       .pads = pad2,
       .groups = 64,
       .bias = true,
       .activation = hard_swish},
      {.n = 8, .c = 16, .h = 7, .w = 7, .k = 16, .r = 5, .s = 5, .pads = pad2, .groups = 16, .residual = true},
      {.n = 1,
       .c = 17,
       .h = 28,
       .w = 27,
       .k = 17,
       .r = 5,
       .s = 5,
       .stride = {2, 2},
       .pads = {1, 2, 2, 1},
       .groups = 17,
       .bias = true,
       .activation = silu},
      {.n = 1, .c = 16, .h = 4, .w = 3, .k = 16, .r = 5, .s = 5, .stride = {2, 2}, .pads = pad2, .groups = 16},
      {.n = 1, .c = 13, .h = 19, .w = 17, .k = 13, .r = 3, .s = 3, .dilation = {2, 2}, .pads = pad2, .groups = 13},
      {.n = 1, .c = 16, .h = 12, .w = 13, .k = 16, .r = 3, .s = 3, .stride = {1, 2}, .pads = pad1, .groups = 16},
      {.n = 1, .c = 24, .h = 9, .w = 11, .k = 24, .r = 7, .s = 7, .pads = pad3, .groups = 24, .bias = true},
      {.n = 1, .c = 8, .h = 12, .w = 9, .k = 8, .r = 1, .s = 7, .pads = {0, 3, 0, 3}, .groups = 8},
      {.n = 1, .c = 8, .h = 9, .w = 12, .k = 8, .r = 7, .s = 1, .stride = {4, 1}, .groups = 8, .activation = relu},
      {.n = 2, .c = 7, .h = 9, .w = 8, .k = 14, .r = 3, .s = 3, .pads = pad1, .groups = 7, .bias = true},
      {.n = 1,
       .c = 16,
       .h = 11,
       .w = 10,
       .k = 48,
       .r = 5,
       .s = 5,
       .stride = {2, 2},
       .pads = pad2,
       .groups = 16,
       .bias = true,
       .residual = true,
       .activation = relu},
      {.n = 1, .c = 12, .h = 7, .w = 7, .k = 12, .r = 7, .s = 7, .groups = 12},
      {.n = 2, .c = 36, .h = 11, .w = 8, .k = 36, .r = 3, .s = 3, .pads = pad1, .groups = 36, .activation = silu},
      {.n = 1, .c = 44, .h = 9, .w = 9, .k = 44, .r = 3, .s = 3, .stride = {2, 2}, .pads = pad1, .groups = 44},
  };

  // Squeeze-and-excite branches of EfficientNet-B0 and MobileNetV3: a pixel an image.
  for (const auto& [channels, filters] :
       {std::pair<std::int64_t, std::int64_t>{32, 8}, {8, 32}, {1152, 48}, {480, 120}})
    for (const std::int64_t images : {1, 4})
      rows.push_back({.n = images,
                      .c = channels,
                      .k = filters,
                      .bias = true,
                      .activation = filters < channels ? silu : Activation{Kind::sigmoid, 0, 0}});

  // Every activation, on a problem for the dense algorithms, one of channels in eights and one for depthwise.
  const Activation activations[] = {
      relu,       {Kind::clip, -0.5F, 0.75F},      {Kind::leaky_relu, 0.1F, 0}, {Kind::sigmoid, 0, 0}, silu,
      hard_swish, {Kind::hard_sigmoid, 0.2F, 0.5F}};
  for (const Activation& activation : activations)
    for (const auto& [c, k, groups] : {std::array<std::int64_t, 3>{19, 19, 1}, {24, 72, 1}, {19, 19, 19}})
      rows.push_back({.n = 2,
                      .c = c,
                      .h = 9,
                      .w = 10,
                      .k = k,
                      .r = 3,
                      .s = 3,
                      .pads = pad1,
                      .groups = groups,
                      .bias = true,
                      .residual = true,
                      .activation = activation});

  std::vector<ConvCase> cases;
  for (const ConvRow& row : rows) {
    ConvGeometry geometry;
    geometry.stride = row.stride;
    geometry.dilation = row.dilation;
    geometry.pads = row.pads;
    geometry.groups = row.groups;
    ConvProblem problem =
        resolve_conv({row.n, row.c, row.h, row.w}, {row.k, row.c / row.groups, row.r, row.s}, geometry);
    problem.bias = row.bias;
    problem.residual = row.residual;
    problem.activation = row.activation;
    cases.push_back({conv_case_name(problem), problem});
  }
  return cases;
}

}  // namespace lenslet::test
