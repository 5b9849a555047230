#include "ops/conv/cuda/wgmma_halo_split_k_plan.h"

#include <algorithm>

#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/conv/cuda/wgmma_split_k_us.h"
#include "ops/core/tilings.h"

namespace lenslet::cuda {
namespace {

/// More blocks are left to wgmma_halo's persistent ones.
constexpr std::int64_t most_blocks = 1024;

/// Lays out shared memory; false where it does not fit. Takes more than half of a multiprocessor's, so that one block
/// is resident: letting the next kernel start beside it sped layers up by a tenth but slowed VGG-16, 0.2183 to 0.2264
/// ms in fp16, 0.3028 to 0.3377 in TF32 (docs/tried.md).
bool lay_out(HaloSplitKPlan& plan) {
  constexpr int half = 114 << 10, all = 227 << 10;
  const int most_stages = plan.stage_taps == 1 ? 16 : 8;
  // Double-buffered where a split has several groups.
  plan.halo_stages = plan.split_groups() > 1 ? 2 : 1;
  const int filters_at = halo_tiles_at(log2_of(plan.split_k)) + plan.halo_stages * plan.halo_bytes;
  const std::int64_t stages = plan.split_groups() * plan.taps / plan.stage_taps;
  const std::int64_t fitting = std::max(0, all - filters_at) / plan.filter_bytes;
  plan.filter_stages = static_cast<int>(std::min({stages, fitting, std::int64_t{most_stages}}));
  plan.total = std::max(filters_at + plan.filter_stages * plan.filter_bytes, half);
  return plan.filter_stages >= std::min<std::int64_t>(stages, 3);
}

}  // namespace

UnitShape halo_split_k_unit(const ConvProblem& p) {
  UnitShape unit(p, halo_split_k_columns);
  unit.lines = halo_split_k_lines;
  return unit;
}

std::string HaloSplitKPlan::str() const {
  ConfigWriter text;
  text.add("lines", std::int64_t{halo_split_k_lines})
      .add("filters", std::int64_t{halo_split_k_filters})
      .add("split_k", std::int64_t{split_k});
  if (stage_taps != 1) text.add("taps", std::int64_t{stage_taps});
  return text.str();
}

std::vector<HaloSplitKPlan> halo_split_k_tilings(const ConvProblem& p) {
  std::vector<HaloSplitKPlan> tilings;
  const auto element_bytes = static_cast<std::int64_t>(dtype_bytes(p.storage));
  // Limits of the argument's fields (HaloSplitK).
  constexpr std::int64_t most_taps = 255, most_pad = 32767;
  if (std::max(p.r, p.s) > most_taps || std::max(p.pad_top, p.pad_left) > most_pad) return {};
  if (p.groups > 1 || p.c * element_bytes <= halo_split_k_row_bytes / 2) return {};
  const UnitShape unit = halo_split_k_unit(p);
  for (const int split_k : split_k_counts)
    for (const int stage_taps : {3, 1}) {
      HaloSplitKPlan plan;
      plan.split_k = split_k;
      plan.stage_taps = stage_taps;
      plan.units = unit.units(p);
      plan.tiles_n = ceil_div(p.k, halo_split_k_filters);
      plan.k_groups = ceil_div(p.c * element_bytes, halo_split_k_row_bytes);
      plan.taps = p.r * p.s;
      plan.lines = static_cast<int>(unit.lines + (p.r - 1) * p.dilation_h);
      plan.columns = unit.pitch();
      plan.halo_bytes =
          static_cast<int>(ceil_div(std::int64_t{plan.lines} * plan.columns * halo_split_k_row_bytes, 1024) * 1024);
      plan.filter_bytes = stage_taps * halo_split_k_filters * halo_split_k_row_bytes;
      // Each rank owns whole rows of fragments.
      if (halo_split_k_filters / fragment_filters % split_k != 0) continue;
      if (p.s % stage_taps != 0 || split_k > plan.k_groups) continue;
      // One longer split slowed VGG-16 in fp16 (0.562 to 0.578 ms), although its layers gain alone; unexplained. TF32
      // gains (docs/tried.md).
      constexpr std::int64_t most_steps = 36;
      if (split_k == 1 && p.storage != DType::f32 && plan.k_groups * plan.taps > most_steps) continue;
      if (plan.units * plan.tiles_n * split_k > most_blocks) continue;
      if (lay_out(plan)) tilings.push_back(plan);
    }
  return tilings;
}

double halo_split_k_us(const ConvProblem& p, const HaloSplitKPlan& plan, const DeviceProfile& device,
                       const HaloSplitKCosts& costs) {
  const double halo_rows = static_cast<double>(plan.lines) * plan.columns;
  const double first_us = halo_rows * halo_split_k_row_bytes * device.units / costs.split_k.l2_bytes_per_us;
  const bool tf32 = p.storage == DType::f32;
  const std::int64_t tiles = plan.units * plan.tiles_n, blocks = tiles * plan.split_k;
  const auto waves = static_cast<double>(ceil_div(blocks, filled_multiprocessors(plan.split_k, device)));
  const double crowded_us = 2 * blocks > device.units ? waves * costs.crowd_us : 0;
  return first_us + crowded_us + (tf32 ? costs.float_us : 0) +
         split_k_us(p,
                    {.tile = {halo_split_k_filters, halo_split_k_pixels},
                     .efficiency = plan.stage_taps == 1 ? costs.efficiency_by_taps : costs.efficiency_by_lines,
                     .split_k = plan.split_k,
                     .tiles = tiles,
                     .steps = plan.split_groups() * plan.split_k * plan.taps,
                     .block_k = halo_split_k_row_bytes / static_cast<double>(dtype_bytes(p.storage)),
                     .rows = halo_split_k_filters + halo_rows / static_cast<double>(plan.taps),
                     .row_bytes = halo_split_k_row_bytes,
                     .flops_per_us = device.flops_per_us(tf32 ? Numerics::Multiply::tf32 : Numerics::Multiply::fp16)},
                    costs.split_k, device);
}

std::optional<HaloSplitKPlan> plan_halo_split_k(const ConvProblem& p) {
  return best_tiling(halo_split_k_tilings(p),
                     [&](const auto& plan) { return halo_split_k_us(p, plan, reference_gpu()); });
}

bool is_halo_split_k(std::string_view config) { return config.find("split_k=") != std::string_view::npos; }

HaloSplitKPlan read_halo_split_k_plan(const ConvProblem& p, std::string_view config) {
  return find_tiling(halo_split_k_tilings(p), config);
}

}  // namespace lenslet::cuda
