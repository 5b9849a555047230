#include "ops/conv/cuda/wgmma_gemm_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ops/conv/cuda/costs/wgmma_windows.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_split_k_us.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

static_assert(wgmma_gemm_costs.efficiency.size() == wgmma_tiles.size());
static_assert(wgmma_gemm_costs.split_k_efficiency.size() == split_k_tiles.size());

/// All but what follows from the tile.
WgmmaGemmPlan tiling(const ConvProblem& p, int width) {
  WgmmaGemmPlan plan;
  plan.width = width;
  plan.k_groups = p.r * p.s * ceil_div(p.c, width);
  plan.k_groups_per_block = plan.k_groups == 1 ? 1 : wgmma_step / width;
  plan.steps = ceil_div(plan.k_groups, plan.k_groups_per_block);
  return plan;
}
WgmmaGemmPlan tiled(const ConvProblem& p, WgmmaGemmPlan plan) {
  plan.tiles_m = ceil_div(p.n * p.p * p.q, plan.m());
  plan.tiles_n = ceil_div(p.k, plan.n());
  return plan;
}

/// 64, and narrower widths that pad less. With several taps no width that is half empty if a narrower one is not:
/// 64x16x55x55 -> 64, 3x3, takes 31.6 us by 16 channels, 41.6 by 32.
std::vector<int> useful_widths(const ConvProblem& p) {
  std::vector<int> widths;
  std::int64_t gemm_k = std::numeric_limits<std::int64_t>::max();
  for (const int width : wgmma_widths) {
    const std::int64_t with = ceil_div(p.c, width) * width;
    if (p.r * p.s > 1 && width > wgmma_widths.back() && 2 * p.c <= width) continue;
    if (with < gemm_k) widths.push_back(width);
    gemm_k = std::min(gemm_k, with);
  }
  return widths;
}

double block_k(const WgmmaGemmPlan& plan) { return plan.k_groups_per_block * plan.width; }
/// Least time of a k-block's TMA loads, from L2 or memory.
double copies_us(const WgmmaGemmPlan& plan, const WgmmaGemmCosts& costs) {
  return (plan.m() + plan.n()) * block_k(plan) / plan.width / costs.split_k.rows_per_us;
}

double persistent_us(const ConvProblem& p, const WgmmaGemmPlan& plan, const DeviceProfile& device,
                     const WgmmaGemmCosts& costs) {
  const ConvProblem set = group_set(p, plan.together);
  const WgmmaTileShape& shape = shape_of(plan.tile);
  const double rate = costs.efficiency[static_cast<std::size_t>(plan.tile)] *
                      device.flops_per_us(Numerics::Multiply::fp16) / device.units;
  double products_us = 2.0 * shape.m * shape.n * block_k(plan) / rate;
  if (p.residual && shared_of(shape, true).stages <= 3 && plan.steps > 8) products_us *= costs.shallow;
  const double copied_us = copies_us(plan, costs);
  const TailSteps tails(set, plan.width);
  const double steps_us = (static_cast<double>(plan.steps) - tails.count) * std::max(products_us, copied_us) +
                          tails.us(products_us, copied_us, costs.tail_us);
  double out_us = staged_filters(shape.n) == 64 ? costs.epilogue_us : costs.narrow_epilogue_us;
  if (!holds_biases(shape)) out_us *= costs.unheld;
  if (p.residual && shared_of(shape, true).slots == 2) out_us *= costs.crowded;
  if (!is_clamp(p.activation.kind)) out_us += costs.activation_us * wgmma_consumers / shape.consumers;
  // Each multiprocessor's tiles one after the other, or memory time.
  const auto waves = static_cast<double>(ceil_div(plan.tiles_m * plan.tiles_n, device.units));
  const double tile_us = windows_cost(p, plan.together, shape, waves) *
                         (steps_us + ragged_us(set, tails.width, true) + out_us * shape.m * shape.n / (128.0 * 128.0));
  const double least_us = p.flops() / (costs.sustained * device.flops_per_us(Numerics::Multiply::fp16));
  const double tiles_us = std::max(waves * tile_us, least_us), memory_us = padded_bytes(p) / device.bytes_per_us;
  return costs.start_us + (plan.sets > 1 ? costs.sets_us : 0) + std::max(tiles_us, memory_us) +
         costs.unhidden * std::min(tiles_us, memory_us);
}

double clusters_us(const ConvProblem& p, const WgmmaGemmPlan& plan, const DeviceProfile& device,
                   const WgmmaGemmCosts& costs) {
  return split_k_us(p,
                    {.tile = shape_of(plan.split_k_tile),
                     .efficiency = costs.split_k_efficiency[static_cast<std::size_t>(plan.split_k_tile)],
                     .split_k = plan.split_k,
                     .tiles = plan.tiles_m * plan.tiles_n,
                     .steps = plan.steps,
                     .block_k = block_k(plan),
                     .rows = static_cast<double>((plan.m() + plan.n()) * plan.k_groups_per_block),
                     .row_bytes = plan.width * 2.0,
                     .ragged_us = ragged_us(p, plan.width),
                     .flops_per_us = device.flops_per_us(Numerics::Multiply::fp16)},
                    costs.split_k, device);
}

}  // namespace

double windows_cost(const ConvProblem& p, std::int64_t together, const WgmmaTileShape& tile, double waves) {
  if (p.r * p.s == 1)
    return tile.m == 128 && tile.n == 96 && p.x_storage != DType::f32 ? window_costs.pointwise_128x96 : 1;
  if (p.groups > 1) {
    const bool strided = p.stride_h > 1 || p.stride_w > 1, f32 = p.x_storage == DType::f32;
    return strided ? 1 : f32 || together * p.group_c() <= wgmma_step ? window_costs.thin_sets : window_costs.sets;
  }
  if (tile.n == 32) return window_costs.narrow;
  if (2 * p.group_k() <= tile.n) return window_costs.half_empty;
  if (tile.m == 192 && tile.n == 64 && waves == 2) return window_costs.two_waves_192x64;
  if (tile.m == 128 && tile.n == 128 && waves <= 1) return window_costs.one_wave_128x128;
  return waves <= 1 && tile.m >= 192 && tile.n == 64 ? window_costs.one_wave_of_64 : 1;
}

std::int64_t prepared_channels(const ConvProblem& p) {
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(p.x_storage));
  const std::int64_t row = p.c * bytes <= 32 ? 32 : p.c * bytes <= 64 ? 64 : 128;
  return ceil_div(p.c * bytes, row) * row / bytes;
}

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
  // Limits of im2col tensor maps with two spatial axes, and of the instruction's offsets.
  constexpr std::int64_t least_corner = -128, most_corner = 127, most_stride = 8, most_offset = 255;
  if (p.stride_h > most_stride || p.stride_w > most_stride)
    return fmt::format("a stride beyond {}, which TMA cannot take", most_stride);
  if ((p.r - 1) * p.dilation_h > most_offset || (p.s - 1) * p.dilation_w > most_offset)
    return fmt::format("a window of more than {} lines or columns", most_offset + 1);
  const auto fits = [&](std::int64_t pad, std::int64_t outputs, std::int64_t stride, std::int64_t inputs) {
    const std::int64_t upper = (outputs - 1) * stride - pad - (inputs - 1);
    return -pad >= least_corner && upper >= least_corner && upper <= most_corner;
  };
  if (!fits(p.pad_left, p.q, p.stride_w, p.w) || !fits(p.pad_top, p.p, p.stride_h, p.h))
    return "windows begin too far inside or outside of the image for TMA";
  return std::nullopt;
}

bool goes_by_channels(const ConvProblem& p) {
  const bool several = p.r * p.s > 1 && p.c * static_cast<std::int64_t>(dtype_bytes(p.x_storage)) > wgmma_step_bytes;
  return several && (p.x_storage == DType::f32 || p.stride_h > 1 || p.stride_w > 1);
}

bool is_pointwise(const ConvProblem& p) {
  return p.r == 1 && p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && !p.padded();
}

std::optional<std::string> refuse_tma_sizes(const ConvProblem& p, int log2, std::int64_t tiles_m,
                                            std::int64_t tiles_n) {
  const std::int64_t limit = std::int64_t{1} << log2;
  if (p.n > limit / p.p / p.q || p.n > limit / p.h / p.w) return fmt::format("more than 2^{} pixels", log2);
  if (p.c > limit / p.h / p.w || p.k > limit / p.r / p.s || p.c > limit / p.r / p.s)
    return fmt::format("an image or the filters have more than 2^{} elements", log2);
  if (tiles_m > limit / tiles_n) return fmt::format("more than 2^{} tiles", log2);
  return std::nullopt;
}

std::optional<std::string> refuse_wgmma_sizes(const ConvProblem& p, std::int64_t tile_n) {
  if (auto reason = refuse_tma_sizes(p, 30, p.n * p.p * p.q, ceil_div(p.k, tile_n))) return reason;
  if (is_pointwise(p)) return std::nullopt;
  return refuse_im2col(p);
}

KTail::KTail(const ConvProblem& p, int width) {
  const std::int64_t left = p.c % width;
  const bool whole = width * static_cast<int>(dtype_bytes(p.x_storage)) == wgmma_step_bytes;
  if (whole && left > 0 && left <= width / 2 && p.r * p.s > 1 && !p.residual) first = static_cast<int>(p.c - left);
}

std::string WgmmaGemmPlan::str() const {
  ConfigWriter text;
  text.add("tile", fmt::format("{}x{}", m(), n()));
  if (split_k != 0) text.add("split_k", std::int64_t{split_k});
  if (width != wgmma_step) text.add("width", std::int64_t{width});
  if (together != 1) text.add("together", together);
  return text.str();
}

WgmmaGemmPlan tile_wgmma(const ConvProblem& p, WgmmaTile tile, int width) {
  WgmmaGemmPlan plan = tiling(p, width);
  plan.tile = tile;
  return tiled(p, plan);
}

WgmmaGemmPlan tile_wgmma(const ConvProblem& p, SplitKTile tile, int split_k, int width) {
  WgmmaGemmPlan plan = tiling(p, width);
  plan.split_k_tile = tile;
  plan.split_k = split_k;
  return tiled(p, plan);
}

std::vector<WgmmaGemmPlan> wgmma_tilings(const ConvProblem& p) {
  std::vector<WgmmaGemmPlan> tilings;
  if (p.groups > 1) {
    for (const std::int64_t together : useful_sets(p)) {
      const ConvProblem set = group_set(p, together);
      for (const int width : useful_widths(set))
        for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
          const auto tile = static_cast<WgmmaTile>(i);
          if (set.k % shape_of(tile).n == 0 && has_width(tile, width))
            tilings.push_back(
                split_sets(p, together, [&](const ConvProblem& one) { return tile_wgmma(one, tile, width); }));
        }
    }
    return tilings;
  }
  for (const int width : useful_widths(p)) {
    for (std::size_t i = 0; i < wgmma_tiles.size(); ++i) {
      const auto tile = static_cast<WgmmaTile>(i);
      if (has_width(tile, width)) tilings.push_back(tile_wgmma(p, tile, width));
    }
    for (std::size_t i = 0; i < split_k_tiles.size(); ++i)
      for (const int split_k : split_k_counts) {
        const auto tile = static_cast<SplitKTile>(i);
        if (!has_width(tile, width)) continue;
        const WgmmaGemmPlan plan = tile_wgmma(p, tile, split_k, width);
        if (split_k <= plan.steps) tilings.push_back(plan);
      }
  }
  return tilings;
}

double wgmma_plan_us(const ConvProblem& p, const WgmmaGemmPlan& plan, const DeviceProfile& device,
                     const WgmmaGemmCosts& costs) {
  return plan.split_k == 0 ? persistent_us(p, plan, device, costs) : clusters_us(p, plan, device, costs);
}

WgmmaGemmPlan plan_wgmma_gemm(const ConvProblem& p) {
  return best_tiling(wgmma_tilings(p), [&](const auto& plan) { return wgmma_plan_us(p, plan, reference_gpu()); })
      .value();
}

WgmmaGemmPlan read_wgmma_gemm_plan(const ConvProblem& p, std::string_view config) {
  return find_tiling(wgmma_tilings(p), config);
}

}  // namespace lenslet::cuda
