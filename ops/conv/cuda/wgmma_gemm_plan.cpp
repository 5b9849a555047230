#include "ops/conv/cuda/wgmma_gemm_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lenslet::cuda {
namespace {

// Fitted by tools/scripts/refit_tensor_cores.py to 183 cuts in fp16 (H200, 24 November 2026): root mean square error
// 12 %, 11 % on 80 others.

/// From the launch to the first product: barriers, tensor maps, a trip to memory.
constexpr double start_us = 1.17;
/// A tile's way out where the other consumer's products do not hide it, of 128x128 outputs.
constexpr double epilogue_us = 1.38;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string to_string(const WgmmaTileShape& shape) { return fmt::format("{}x{}", shape.m, shape.n); }

}  // namespace

Im2colBox im2col_box(const ConvProblem& p) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  return {.lower_w = narrow(-p.pad_left),
          .lower_h = narrow(-p.pad_top),
          .upper_w = narrow((p.q - 1) * p.stride_w - p.pad_left - (p.w - 1)),
          .upper_h = narrow((p.p - 1) * p.stride_h - p.pad_top - (p.h - 1)),
          .stride_w = narrow(p.stride_w),
          .stride_h = narrow(p.stride_h)};
}

std::optional<std::string> refuse_im2col(const ConvProblem& p) {
  // What a tensor map of two spatial axes holds, and what an instruction's offsets do.
  constexpr std::int64_t least_corner = -128, most_corner = 127, most_stride = 8, most_offset = 255;
  if (p.stride_h > most_stride || p.stride_w > most_stride)
    return fmt::format("a stride beyond {}, which the copy engine cannot take", most_stride);
  if ((p.r - 1) * p.dilation_h > most_offset || (p.s - 1) * p.dilation_w > most_offset)
    return fmt::format("a window of more than {} lines or columns", most_offset + 1);
  const auto fits = [&](std::int64_t pad, std::int64_t outputs, std::int64_t stride, std::int64_t inputs) {
    const std::int64_t upper = (outputs - 1) * stride - pad - (inputs - 1);
    return -pad >= least_corner && upper >= least_corner && upper <= most_corner;
  };
  if (!fits(p.pad_left, p.q, p.stride_w, p.w) || !fits(p.pad_top, p.p, p.stride_h, p.h))
    return "windows begin too far inside or outside of the image for the copy engine";
  return std::nullopt;
}

bool is_pointwise(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

WindowWalk::WindowWalk(const ConvProblem& problem) : p(problem.p), q(problem.q) {
  const Im2colBox box = im2col_box(problem);
  lower_w = box.lower_w;
  lower_h = box.lower_h;
  stride_w = box.stride_w;
  stride_h = box.stride_h;
}

std::string WgmmaGemmPlan::str() const {
  ConfigWriter text;
  text.add("tile", to_string(shape_of(tile)));
  if (cluster != 1) text.add("cluster", std::int64_t{cluster});
  return text.str();
}

WgmmaGemmPlan cut_wgmma(const ConvProblem& p, WgmmaTile tile, int cluster) {
  const WgmmaTileShape& shape = shape_of(tile);
  return {.tile = tile,
          .tiles_m = ceil_div(p.n * p.p * p.q, shape.m),
          .tiles_n = ceil_div(p.k, shape.n),
          .steps = p.r * p.s * ceil_div(p.c, wgmma_step),
          .cluster = cluster};
}

double wgmma_plan_us(const ConvProblem& p, const WgmmaGemmPlan& plan, const DeviceProfile& device) {
  const WgmmaTileShape& shape = shape_of(plan.tile);
  const double rate = shape.efficiency * device.flops_per_us(Numerics::Multiply::fp16) / device.units;
  const double step_us = 2.0 * shape.m * shape.n * wgmma_step / rate;
  const double tile_us = static_cast<double>(plan.steps) * step_us + epilogue_us * shape.m * shape.n / (128.0 * 128.0);
  // Each multiprocessor's share of tiles, one after the other; or what memory takes.
  const auto rounds = static_cast<double>(ceil_div(plan.tiles_m * plan.tiles_n, device.units));
  return start_us + std::max(rounds * tile_us, p.bytes() / device.bytes_per_us);
}

WgmmaGemmPlan plan_wgmma_gemm(const ConvProblem& p, const DeviceProfile& device) {
  WgmmaGemmPlan best;
  double best_us = std::numeric_limits<double>::infinity();
  for (std::size_t tile = 0; tile < wgmma_tiles.size(); ++tile) {
    const WgmmaGemmPlan plan = cut_wgmma(p, static_cast<WgmmaTile>(tile));
    const double us = wgmma_plan_us(p, plan, device);
    if (us >= best_us) continue;
    best_us = us;
    best = plan;
  }
  return best;
}

WgmmaGemmPlan read_wgmma_gemm_plan(const ConvProblem& p, std::string_view config) {
  ConfigReader reader(config);
  const std::string_view text = reader.word("tile");
  std::size_t tile = 0;
  while (tile < wgmma_tiles.size() && to_string(wgmma_tiles[tile]) != text) ++tile;
  if (tile == wgmma_tiles.size()) reader.refuse("there is no kernel for such a tile");
  const auto cluster = static_cast<int>(reader.done() ? 1 : reader.integer("cluster", 2, 2));
  reader.finish();
  return cut_wgmma(p, static_cast<WgmmaTile>(tile), cluster);
}

}  // namespace lenslet::cuda
